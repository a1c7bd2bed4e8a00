// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"encoding/binary"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDoorbellWhoseCountIsFullWakes lets a peer that holds the eventfd fill its count. A
// notification must still wake the goroutine that waits.
func TestDoorbellWhoseCountIsFullWakes(t *testing.T) {
	d, err := newDoorbell()
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := d.setLimit(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var looks atomic.Int64
	var isOver atomic.Bool
	waited := make(chan error, 1)
	go func() {
		waited <- d.wait(func(uintptr) bool {
			looks.Add(1)
			return isOver.Load()
		})
	}()
	var highest [8]byte
	binary.NativeEndian.PutUint64(highest[:], math.MaxUint64-1)
	if _, err := unix.Write(d.descriptor, highest[:]); err != nil {
		t.Fatal(err)
	}
	for looks.Load() == 0 {
		runtime.Gosched()
	}
	isOver.Store(true)
	d.wake()
	if err := <-waited; err != nil {
		t.Errorf("the waiter was not woken: %v", err)
	}
}
