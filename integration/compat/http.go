package compat

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// http sends the request of a step and returns the answer.
func (p *Player) http(ctx context.Context, step Step, failure *StepError) (answer, error) {
	request, shown, err := p.httpRequest(ctx, step)
	if err != nil {
		return answer{}, err
	}
	failure.Request = shown
	response, err := p.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, fmt.Errorf("read the answer: %w", err)
	}
	got := answer{status: response.StatusCode, header: response.Header, body: body, head: step.Method == http.MethodHead}
	if strings.EqualFold(response.Header.Get("Content-Encoding"), "gzip") {
		got.compressed = true
		if got.body, err = gunzip(body); err != nil {
			return answer{}, fmt.Errorf("uncompress the answer: %w", err)
		}
	}
	if v, err := parseJSON(got.body); err == nil {
		got.json, got.hasJSON = v, true
	}
	failure.Got = strings.TrimSpace(fmt.Sprintf("%d %s %s", got.status, got.header.Get("Content-Type"), shorten(string(got.body), 2000)))
	return got, nil
}

func gunzip(text []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// httpRequest fills in the request of a step; the second value shows it.
func (p *Player) httpRequest(ctx context.Context, step Step) (*http.Request, string, error) {
	path, err := p.names.Fill(step.Path)
	if err != nil {
		return nil, "", err
	}
	query, err := p.query(step)
	if err != nil {
		return nil, "", err
	}
	body, contentType, err := p.requestBody(step)
	if err != nil {
		return nil, "", err
	}
	request, err := http.NewRequestWithContext(ctx, step.Method, "http://"+p.target.http(), strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	// The opaque form keeps double slashes and dots as they were recorded.
	request.URL.Opaque, request.URL.RawQuery = path, query
	request.Header.Set("User-Agent", "golden")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	headers, err := p.names.FillMap(step.Headers)
	if err != nil {
		return nil, "", err
	}
	for name, value := range headers {
		switch {
		case value != "none":
			request.Header.Set(name, value)
		case name == "User-Agent":
			// An empty value is the way to have none.
			request.Header.Set(name, "")
		default:
			request.Header.Del(name)
		}
	}
	shown := step.Method + " " + path
	if query != "" {
		shown += "?" + query
	}
	if body != "" {
		shown += " body " + strconv.Quote(body)
	}
	if len(headers) > 0 {
		shown += fmt.Sprintf(" headers %v", headers)
	}
	return request, shorten(shown, 1000), nil
}

func (p *Player) query(step Step) (string, error) {
	if step.RawQuery != "" {
		return p.names.Fill(step.RawQuery)
	}
	return p.encode(step.Query)
}

func (p *Player) encode(values map[string]string) (string, error) {
	filled, err := p.names.FillMap(values)
	if err != nil {
		return "", err
	}
	encoded := url.Values{}
	for name, value := range filled {
		encoded.Set(name, value)
	}
	return encoded.Encode(), nil
}

// requestBody returns the body and its content type.
func (p *Player) requestBody(step Step) (string, string, error) {
	if step.Form != nil {
		body, err := p.encode(step.Form)
		return body, "application/x-www-form-urlencoded", err
	}
	text, ok := step.Body.(string)
	if step.Body != nil && !ok {
		return "", "", fmt.Errorf("a body of type %T", step.Body)
	}
	body, err := p.names.Fill(text)
	return body, "", err
}
