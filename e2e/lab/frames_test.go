// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// streamed connects to an echo server that sends frames of so many bytes.
func streamed(t *testing.T, frameBytes int) (fd int, ended <-chan error) {
	t.Helper()
	raw, err := json.Marshal(echoArgs{
		Addr: netip.MustParseAddrPort("127.0.0.1:0"), CongestionControl: "cubic", FrameBytes: frameBytes,
	})
	must.OK(t, err)
	at, done := make(chan netip.AddrPort, 1), make(chan error, 1)
	go func() {
		_, err := runEchoServer(raw, func(v any) error { at <- v.(netip.AddrPort); return nil }, nil)
		done <- err
	}()
	select {
	case addr := <-at:
		fd, sa, err := tcpSocket(addr, "cubic")
		if err == nil {
			err = unix.Connect(fd, sa)
		}
		must.OK(t, err)
		return fd, done
	case err := <-done:
		t.Fatal(err)
		return 0, nil
	}
}

// TestAnswersGoBetweenFrames: bulk comes without being requested, each request
// has one answer, and the server ends when the client does.
func TestAnswersGoBetweenFrames(t *testing.T) {
	const frame, unasked, requests = 1000, 50, 20
	fd, ended := streamed(t, frame)
	buf := make([]byte, frame)
	for range unasked {
		must.OK(t, readFull(fd, buf))
		if buf[0]|buf[1]|buf[2]|buf[3] == 0 {
			t.Fatal("an answer came before there was a request")
		}
	}
	for range requests {
		if _, err := unix.Write(fd, make([]byte, echoBytes)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range requests {
		if err := readPastFrames(fd, buf); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
	}
	must.OK(t, unix.Close(fd))
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the server ended with %v, want nil", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the server still runs 5 s after the client has closed")
	}
}

func TestFramesThatCannotBe(t *testing.T) {
	if err := serveFrames(0, frameHead); err == nil || !strings.Contains(err.Error(), "more than 4 are needed") {
		t.Errorf("serveFrames of frames without bulk = %v, want how many bytes are needed", err)
	}
	const frame = 1000
	fd, ended := streamed(t, frame)
	if err := readPastFrames(fd, make([]byte, frame/2)); err == nil {
		t.Error("a frame longer than was agreed on was read without an error")
	}
	must.OK(t, unix.Close(fd))
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v, want nil", err)
	}
}
