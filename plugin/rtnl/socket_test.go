// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil/must"
)

const testSeq, testPort = 7, 4711

func message(kind, flags uint16, data ...byte) []byte {
	return messageOf(testSeq, testPort, kind, flags, data...)
}

func messageOf(seq, port uint32, kind, flags uint16, data ...byte) []byte {
	e := binary.NativeEndian
	b := e.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(data)))
	b = e.AppendUint16(e.AppendUint16(b, kind), flags)
	b = append(e.AppendUint32(e.AppendUint32(b, seq), port), data...)
	return append(b, make([]byte, nlaRound(len(data))-len(data))...)
}

func ended(kind, flags uint16, errno unix.Errno, rest ...byte) []byte {
	return message(kind, flags, append(binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno))), rest...)...)
}

func words(text string) []byte {
	return nl.NewRtAttr(nl.NLMSGERR_ATTR_MSG, nl.ZeroTerminated(text)).Serialize()
}

// request is one with so many bytes behind its header, as the kernel echoes it.
func request(bytes int) []byte {
	b := make([]byte, unix.SizeofNlMsghdr+bytes)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

func TestReply(t *testing.T) {
	const want, other, more = unix.RTM_NEWLINK, unix.RTM_NEWADDR, unix.NLM_F_MULTI
	for name, tc := range map[string]struct {
		msgs  [][]byte
		taken string
		ended bool
		err   error
		words string
	}{
		"one message":    {msgs: [][]byte{message(want, 0, 'a')}, taken: "a", ended: true},
		"another answer": {msgs: [][]byte{message(other, 0, 'a')}},
		"of another request": {msgs: [][]byte{
			messageOf(testSeq-1, testPort, want, 0), messageOf(testSeq, testPort+1, want, 0),
		}},
		"a dump that goes on": {msgs: [][]byte{message(want, more, 'a'), message(want, more, 'b')}, taken: "ab"},
		"a dump":              {msgs: [][]byte{message(want, more, 'a'), ended(unix.NLMSG_DONE, more, 0)}, taken: "a", ended: true},
		"an empty end":        {msgs: [][]byte{message(unix.NLMSG_DONE, more)}, ended: true},
		"a dump that was interrupted": {
			msgs:  [][]byte{message(want, more|unix.NLM_F_DUMP_INTR, 'a'), ended(unix.NLMSG_DONE, more, 0)},
			taken: "a", ended: true, err: errInterrupted,
		},
		"an acknowledgement": {msgs: [][]byte{ended(unix.NLMSG_ERROR, unix.NLM_F_CAPPED, 0, request(0)...)}, ended: true},
		"an error":           {msgs: [][]byte{ended(unix.NLMSG_ERROR, 0, unix.EEXIST, request(4)...)}, ended: true, err: unix.EEXIST},
		"an error with words behind the request": {
			msgs:  [][]byte{ended(unix.NLMSG_ERROR, unix.NLM_F_ACK_TLVS, unix.EINVAL, append(request(8), words("no such thing")...)...)},
			ended: true, err: unix.EINVAL, words: "no such thing",
		},
		"an error with words behind the header": {
			msgs:  [][]byte{ended(unix.NLMSG_ERROR, unix.NLM_F_ACK_TLVS|unix.NLM_F_CAPPED, unix.EINVAL, append(request(0), words("no such thing")...)...)},
			ended: true, err: unix.EINVAL, words: "no such thing",
		},
		"a dump that ends with an error and words": {
			msgs:  [][]byte{ended(unix.NLMSG_DONE, more|unix.NLM_F_ACK_TLVS, unix.ENODEV, words("it is gone")...)},
			ended: true, err: unix.ENODEV, words: "it is gone",
		},
		"an error that says it has words and has none": {
			msgs: [][]byte{ended(unix.NLMSG_ERROR, unix.NLM_F_ACK_TLVS, unix.EINVAL)}, ended: true, err: unix.EINVAL,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var taken []byte
			r := reply{seq: testSeq, port: testPort, answer: want, take: func(msg []byte) { taken = append(taken, msg...) }}
			ended, err := r.read(slices.Concat(tc.msgs...))
			if string(taken) != tc.taken || ended != tc.ended || !errors.Is(err, tc.err) {
				t.Errorf("read = %v, %v, took %q, want %v, %v, %q", ended, err, taken, tc.ended, tc.err, tc.taken)
			}
			if err != nil && !strings.HasSuffix(err.Error(), tc.words) {
				t.Errorf("error %q does not end with the kernel's words %q", err, tc.words)
			}
		})
	}
}

func TestReplyRefusesWhatIsNoMessage(t *testing.T) {
	for _, size := range []uint32{0, unix.SizeofNlMsghdr - 1, unix.SizeofNlMsghdr + 5, 1 << 31} {
		b := message(unix.RTM_NEWLINK, unix.NLM_F_MULTI, 1, 2, 3, 4)
		binary.NativeEndian.PutUint32(b, size)
		r := reply{seq: testSeq, port: testPort, take: func([]byte) {}}
		if ended, err := r.read(b); ended || err == nil {
			t.Errorf("a message of %d bytes in %d: %v, %v, want an error", size, len(b), ended, err)
		}
	}
}

// loopback asks for the device lo, of which the kernel tells everybody.
func loopback(c *Conn) error {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("lo")))
	msgs, err := c.Execute(req, unix.RTM_NEWLINK)
	if err == nil && len(msgs) != 1 {
		err = fmt.Errorf("%d answers, want one", len(msgs))
	}
	return err
}

// The kernel answers a reader without privileges, too.
func TestConnAsksTheKernel(t *testing.T) {
	c := must.Get(Dial(nil, unix.NETLINK_ROUTE))(t)
	defer c.Close()
	must.OK(t, loopback(c))
	all := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	all.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	msgs, err := c.Execute(all, unix.RTM_NEWLINK)
	if err != nil || !slices.ContainsFunc(msgs, func(m []byte) bool { return nl.DeserializeIfInfomsg(m).Flags&unix.IFF_LOOPBACK != 0 }) {
		t.Errorf("a dump of devices = %d messages, %v, want lo among them", len(msgs), err)
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETNSID, 0)
	req.AddData(nl.NewRtGenMsg())
	must.Is(t, "a request for no namespace", unix.EINVAL, must.Err(c.Execute(req, unix.RTM_NEWNSID)), "netns reference")
	must.OK(t, loopback(c)) // after an error
}

// A deadline ends what is under way, and refuses what comes after it; taken back, it
// does neither.
func TestDeadline(t *testing.T) {
	c := must.Get(Dial(nil, unix.NETLINK_ROUTE))(t)
	t.Cleanup(c.Close)
	c.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := c.Execute(nl.NewNetlinkRequest(unix.NLMSG_NOOP, 0), 0); !errors.Is(err, ErrNoAnswer) || strings.Contains(err.Error(), answerTimeout.String()) {
		t.Errorf("a request without an answer: %v, want %v before the deadline", err, ErrNoAnswer)
	}
	must.Is(t, "a request after the deadline", ErrLate, loopback(c))
	c.SetDeadline(time.Time{})
	must.OK(t, loopback(c))
	must.Be(t, "time of a request without a deadline", answerTimeout, c.socket.timeout)
}

// An error names the capability that is missing, and no other.
func TestPermissionErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{
			"no way in", subscribeError(entryError("/run/netns/x", unix.EPERM)),
			"enter netns /run/netns/x: permission denied, CAP_SYS_ADMIN is needed: operation not permitted",
		},
		{"refused inside", subscribeError(unix.EPERM), "permission denied, CAP_NET_ADMIN is needed: operation not permitted"},
		{"something else", subscribeError(entryError("/run/netns/x", unix.EBADF)), "enter netns /run/netns/x: bad file descriptor"},
	} {
		must.Be(t, c.name, c.want, c.err.Error())
	}
}
