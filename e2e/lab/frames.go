// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A frame of bulk begins with its length, of frameHead bytes; an answer, which is
// all zeros, begins with a length of 0.
const frameHead = 4

// serveFrames sends bulk until the client closes, and between two frames the
// answers that are due. What is not yet sent is at most a frame, as servers of
// HTTP/2 have it that care for latency: an answer would otherwise wait behind
// all that the socket holds, whatever shapes the pod.
func serveFrames(conn, frameBytes int) error {
	if frameBytes <= frameHead {
		return fmt.Errorf("frames of %d bytes, more than %d are needed", frameBytes, frameHead)
	}
	if err := unix.SetsockoptInt(conn, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, frameBytes); err != nil {
		return fmt.Errorf("set TCP_NOTSENT_LOWAT %d: %w", frameBytes, err)
	}
	var asked atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for request := make([]byte, echoBytes); readFull(conn, request) == nil; {
			asked.Add(1)
		}
	}()
	answer, frame := make([]byte, echoBytes), make([]byte, frameBytes)
	binary.BigEndian.PutUint32(frame, uint32(frameBytes-frameHead))
	for answered := int64(0); !closed(ended); {
		next := frame
		if answered < asked.Load() {
			next = answer
			answered++
		}
		if err := writeFull(conn, next); errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
			return nil // the client has closed: the normal end
		} else if err != nil {
			return err
		}
	}
	return nil
}

// readPastFrames reads the next answer, and what bulk is before it.
func readPastFrames(fd int, buf []byte) error {
	for {
		if err := readFull(fd, buf[:frameHead]); err != nil {
			return err
		}
		bulk := int(binary.BigEndian.Uint32(buf))
		if bulk == 0 {
			return readFull(fd, buf[frameHead:echoBytes])
		}
		if bulk > len(buf) {
			return fmt.Errorf("a frame of %d bytes, at most %d were agreed on", bulk, len(buf))
		}
		if err := readFull(fd, buf[:bulk]); err != nil {
			return err
		}
	}
}

func writeFull(fd int, buf []byte) error {
	for len(buf) > 0 {
		n, err := unix.Write(fd, buf)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		buf = buf[max(n, 0):]
	}
	return nil
}
