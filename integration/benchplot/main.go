// Command benchplot draws how the cost of an operation changes as a node holds more.
//
//	benchplot -json FILE < OUTPUT    keeps the results of BenchmarkGrowth
//	benchplot -svg FILE < JSON       draws what was kept
//
// It stands here, with a module of its own, because of the library that draws.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// result is one line of a benchmark: what grew, to what, and what one operation cost.
type result struct {
	Growing   string             `json:"growing"`
	Size      float64            `json:"size"`
	Operation string             `json:"operation"`
	Costs     map[string]float64 `json:"costs"` // by unit
}

func main() {
	toJSON := flag.String("json", "", "file for the results, read as go test prints them")
	toSVG := flag.String("svg", "", "file for the drawing, of results read as JSON")
	flag.Parse()
	if err := run(*toJSON, *toSVG, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "benchplot:", err)
		os.Exit(1)
	}
}

func run(toJSON, toSVG string, in io.Reader) error {
	switch {
	case (toJSON == "") == (toSVG == ""):
		return errors.New("give one of -json FILE and -svg FILE")
	case toJSON != "":
		results, err := read(in)
		if err != nil {
			return err
		}
		b, err := json.MarshalIndent(results, "", "  ")
		if err != nil {
			return err
		}
		return os.WriteFile(toJSON, append(b, '\n'), 0o644)
	}
	var results []result
	if err := json.NewDecoder(in).Decode(&results); err != nil {
		return fmt.Errorf("read results: %w", err)
	}
	f, err := os.Create(toSVG)
	if err != nil {
		return err
	}
	return errors.Join(write(f, results), f.Close())
}

var line = regexp.MustCompile(`^BenchmarkGrowth/(\w+)=(\d+)/(\w+)(?:-\d+)?\s+\d+\s+(.*)$`)

// read reads the output of go test -bench. Of a benchmark that ran several times it
// keeps the median of each cost.
func read(in io.Reader) ([]result, error) {
	var results []result
	runs := make(map[string][]map[string]float64)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		size, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		costs := make(map[string]float64)
		words := strings.Fields(m[4])
		for n := 0; n+1 < len(words); n += 2 {
			if costs[words[n+1]], err = strconv.ParseFloat(words[n], 64); err != nil {
				return nil, fmt.Errorf("line %q: %w", lines.Text(), err)
			}
		}
		key := m[1] + m[2] + m[3]
		if runs[key] == nil {
			results = append(results, result{Growing: m[1], Size: size, Operation: m[3]})
		}
		runs[key] = append(runs[key], costs)
	}
	for k, r := range results {
		results[k].Costs = median(runs[r.Growing+strconv.FormatFloat(r.Size, 'f', -1, 64)+r.Operation])
	}
	if len(results) == 0 {
		return nil, errors.New("no results of BenchmarkGrowth in the input")
	}
	return results, lines.Err()
}

func median(runs []map[string]float64) map[string]float64 {
	out := make(map[string]float64)
	for unit := range runs[0] {
		var all []float64
		for _, costs := range runs {
			all = append(all, costs[unit])
		}
		slices.Sort(all)
		out[unit] = all[len(all)/2]
	}
	return out
}

// panels are the drawings, side by side.
func panels() []struct{ growing, title, x string } {
	return []struct{ growing, title, x string }{
		{"instances", "Ten instances in a service", "instances on the node"},
		{"members", "One service", "instances of the service"},
	}
}

// drawable returns the smallest number of points that a line has.
func drawable(lines map[string]plotter.XYs) int {
	fewest := math.MaxInt
	for _, points := range lines {
		fewest = min(fewest, len(points))
	}
	return fewest
}

func write(w io.Writer, results []result) error {
	const width, height = 22 * vg.Centimeter, 9 * vg.Centimeter
	canvas := vgsvg.New(width, height)
	tiles := draw.Tiles{Rows: 1, Cols: len(panels()), PadX: vg.Centimeter, PadTop: vg.Millimeter * 3, PadBottom: vg.Millimeter * 3, PadLeft: vg.Millimeter * 3, PadRight: vg.Millimeter * 3}
	for k, p := range panels() {
		drawing := plot.New()
		drawing.Title.Text, drawing.X.Label.Text, drawing.Y.Label.Text = p.title, p.x, "ns of one operation"
		drawing.X.Scale, drawing.Y.Scale = plot.LogScale{}, plot.LogScale{}
		drawing.X.Tick.Marker, drawing.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
		drawing.Legend.Top, drawing.Legend.Left = true, true
		lines := make(map[string]plotter.XYs)
		var operations []string
		for _, r := range results {
			if r.Growing != p.growing {
				continue
			}
			if lines[r.Operation] == nil {
				operations = append(operations, r.Operation)
			}
			lines[r.Operation] = append(lines[r.Operation], plotter.XY{X: r.Size, Y: r.Costs["ns/op"]})
		}
		if len(operations) == 0 || drawable(lines) < 2 {
			return fmt.Errorf("results of growing %s are missing: two sizes are needed", p.growing)
		}
		var all []any
		for _, operation := range operations {
			all = append(all, operation, lines[operation])
		}
		if err := plotutil.AddLinePoints(drawing, all...); err != nil {
			return err
		}
		drawing.Y.Min, drawing.Y.Max = 10, max(drawing.Y.Max, 100_000)
		drawing.Draw(tiles.At(draw.New(canvas), k, 0))
	}
	_, err := canvas.WriteTo(w)
	return err
}
