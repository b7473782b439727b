// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// elsewhere is podweir with other places than those of the node.
func (n *noticed) elsewhere(change func(*cli)) *noticed {
	c, other := *n.cli, *n
	change(&c)
	other.cli = &c
	return &other
}

// remains looks whether all is as the runtime's ADD made it.
func (n *noticed) remains(t *testing.T, programs string) {
	t.Helper()
	must.Be(t, "programs and queues in the pod", programs, n.programs(t))
	must.OK(t, n.verb(t, "CHECK"))
	holds(t, "status", n.say(t, "status", "-o", "wide"), inOrder)
	must.Be(t, "floods", same, n.becomes(t, 1000, same))
}

// Whoever runs podweir in another network namespace than the node's sees no host's end there: that is no difference to
// repair, and nothing to remove.
func TestPrivilegedInAnotherNamespace(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNoticed(t, nil)
	// A record of an older build does not say which namespace that is, until the node's podweir has looked.
	path := filepath.Join(n.pins, "net", "c1,eth0", "eth0")
	text := string(must.Get(datapath.ReadRecord(path))(t))
	older := regexp.MustCompile(`,"hostNetnsCookie":[0-9]+`).ReplaceAllString(text, "")
	n.replaceRecord(t, older)
	n.must(t, "repair")
	before, there := n.programs(t), n.elsewhere(func(c *cli) { c.node = testutil.NewNetNS(t) })
	const why = "has its other end in another network namespace than podweir runs in"
	there.broken(t, []string{"UNKNOWN default/web", why, "!DIFFERS"}, "status")
	for _, args := range [][]string{{"repair"}, {"detach", "--container", "c1"}, {"set", "--container", "c1", "--egress", "400k"}, {"gc"}} {
		holds(t, args[0], oneLine(there.say(t, args...)), []string{why})
	}
	must.Fail(t, "CHECK", there.verb(t, "CHECK"), why)
	n.remains(t, before)
	// Nothing is left to be taken for another's once the pod is gone.
	n.end(t)
	there.must(t, "gc")
	n.well(t, noPod, "status")
}

// What the node's own pins tell of is neither lost nor free for whoever names another directory of pins.
func TestPrivilegedOtherPins(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNoticed(t, nil)
	usual := engine.DefaultPaths.Pins
	engine.DefaultPaths.Pins = n.pins
	t.Cleanup(func() { engine.DefaultPaths.Pins = usual })
	before, there := n.programs(t), n.elsewhere(func(c *cli) { c.pins = filepath.Join(testutil.BPFFS(t), "podweir") })
	makePins(t, there.pins)
	there.fails(t, []string{`shaped as network "net" container "c1"`}, append(there.netns(), "attach", "--egress", "10M")...)
	there.fails(t, []string{"nothing is attached"}, append(there.netns(), "detach")...)
	there.well(t, []string{"No pod of this node", "!no record of"}, "status")
	there.well(t, []string{"!removed"}, "gc")
	n.remains(t, before)
	// Where there is none, the other directory is as good, by whatever path.
	must.OK(t, n.verb(t, "DEL"))
	there.must(t, append(there.netns(), "attach", "--egress", "800k", "--ingress", "800k")...)
	must.Be(t, "floods", same, there.becomes(t, 1000, same))
	there.must(t, append(there.netns(), "detach")...)
	must.Be(t, "floods", free, there.becomes(t, 1000, free))
}
