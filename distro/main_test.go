package distro

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain looks for goroutines that were left behind. The library's last probe may
// end up to eight probe intervals after Close.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		end := time.Now().Add(10 * time.Second)
		err := goleak.Find()
		for err != nil && time.Now().Before(end) {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
