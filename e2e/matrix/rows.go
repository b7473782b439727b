// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/matrix/cnis"
	"github.com/podweir/podweir/e2e/matrix/row"
	"github.com/podweir/podweir/e2e/matrix/scenario"
	"github.com/podweir/podweir/e2e/step"
)

// session is one run of rows.
type session struct {
	o     *options
	dir   string
	about row.Result
	keep  func(row.Result) error

	mu     sync.Mutex // of the errors, of keep and of the output
	failed []error
}

// runner runs rows, in one cluster for as long as that is honest.
type runner struct {
	*session
	// say reports the progress of the row.
	say func(format string, args ...any)
	// cluster is nil before the first row, and after a row that failed or left
	// something: the next begins with another one.
	cluster *cluster.Cluster
	// images are those of the cluster's rows, beside podweir's.
	images []string
	// kubernetes is the release of the cluster, "" for the newest.
	kubernetes string
	// clusterDir has the logs of the last cluster: the control plane's, and /var/log of
	// each node when it has ended.
	clusterDir string
}

func newRun(r *row.Row) (*scenario.Run, error) {
	cni, err := cnis.New(r)
	return &scenario.Run{Row: r, CNI: cni}, err
}

// runRows runs rows, as many at a time as the options say, and gives each result to keep
// when the row has ended; one that fails does not stop the others. A row that was
// interrupted has none.
func runRows(ctx context.Context, o *options, chosen []*row.Row, keep func(row.Result) error) error {
	s := &session{o: o, dir: o.logs, keep: keep}
	var err error
	if s.dir == "" {
		s.dir, err = os.MkdirTemp("", "podweir-matrix-")
	} else {
		err = os.MkdirAll(s.dir, 0o755)
	}
	if err = errors.Join(err, s.aboutUs()); err != nil {
		return err
	}
	began := time.Now()
	q := newQueue(chosen)
	var all sync.WaitGroup
	for range max(1, o.jobs) {
		all.Go(func() { s.work(ctx, q) })
	}
	all.Wait()
	fmt.Printf("%d rows in %.1f min\n", len(chosen), time.Since(began).Minutes())
	if err := errors.Join(append(s.failed, ctx.Err())...); err != nil {
		return err
	}
	if o.logs == "" {
		return os.RemoveAll(s.dir)
	}
	return nil
}

// work runs rows of a queue one after another.
func (s *session) work(ctx context.Context, q *queue) {
	u := &runner{session: s}
	last := ""
	for r := q.next(last); r != nil && ctx.Err() == nil; r = q.next(last) {
		last = group(r)
		u.say = func(format string, args ...any) { s.print(r, fmt.Sprintf(format, args...)) }
		began := time.Now()
		u.say("%s: %s, %s, policy %s", r.Name, r.Version, r.Variant, r.Policy)
		res, err := u.row(ctx, r)
		if err != nil {
			u.say("%v", err)
			err = fmt.Errorf("row %s failed; logs are in %s and %s", r.Name, filepath.Join(s.dir, r.Name), u.clusterDir)
		}
		u.say("%s: %s in %.0f s", r.Name, res.Verdict(), time.Since(began).Seconds())
		s.mu.Lock()
		s.failed = append(s.failed, err)
		if ctx.Err() == nil && (res.Steps != nil || res.Lacks != "") {
			s.failed = append(s.failed, s.keep(res))
		}
		s.mu.Unlock()
	}
	err := u.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, err)
}

// print says whose line it is where rows run side by side.
func (s *session) print(r *row.Row, line string) {
	if s.o.jobs > 1 && !strings.HasPrefix(line, r.Name+":") {
		line = r.Name + ":" + line
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Println(line)
}

// aboutUs is what every result has.
func (s *session) aboutUs() error {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	// The image is named by the version of the source that it was made of.
	image, err := os.ReadFile(filepath.Join(s.o.root, "bin/image/digest"))
	if err != nil {
		return fmt.Errorf("%w: \"make image\" makes it", err)
	}
	name, _, _ := strings.Cut(string(image), " ")
	s.about = row.Result{
		Date: time.Now().UTC().Format(time.DateOnly), Commit: name[strings.LastIndexByte(name, ':')+1:],
		Kernel: unix.ByteSliceToString(uts.Release[:]), CPUs: runtime.NumCPU(),
	}
	return nil
}

// row runs one.
func (u *runner) row(ctx context.Context, r *row.Row) (res row.Result, err error) {
	defer step.End(&err)
	res = u.about
	res.Row, res.Version = r.Name, r.Version
	if res.Lacks, err = lacks(ctx, r.Kernel); err != nil || res.Lacks != "" {
		return res, err
	}
	run := step.Get(newRun(r))
	run.Say = u.say
	if err := step.Run(func() { u.start(ctx, run) }); err != nil {
		return res, errors.Join(err, u.close())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, scenario.RowsMost, errors.New("the row's time is over"))
	defer cancel()
	u.cluster.Helm3 = r.Helm3
	run.Cluster, run.Chart, run.Dir = u.cluster, filepath.Join(u.o.root, "chart"), filepath.Join(u.dir, r.Name)
	res.Versions = step.Get(u.versions(ctx))
	res.Steps, err = run.All(ctx, scenario.Steps(r))
	if err != nil || u.o.logs != "" {
		err = errors.Join(err, run.KeepLogs(context.WithoutCancel(ctx)))
	}
	if err != nil || len(u.images) == 0 && !u.clean(ctx) {
		err = errors.Join(err, u.close())
	}
	return res, err
}

// startMost is how long start may take: with an empty cache it builds Kubernetes and
// the row's CNI.
const startMost = 40 * time.Minute

// start makes sure that there is a cluster for the row.
func (u *runner) start(ctx context.Context, run *scenario.Run) {
	ctx, cancel := context.WithTimeoutCause(ctx, startMost, fmt.Errorf("the cluster has not started after %v", startMost))
	defer cancel()
	began := time.Now()
	var images []string
	if special, ok := run.CNI.(cnis.Images); ok {
		// The row learns where its charts are, too.
		images = step.Get(special.Images(ctx, filepath.Join(u.o.root, "e2e/matrix")))
	}
	if u.cluster != nil && slices.Equal(u.images, images) && u.kubernetes == run.Row.Kubernetes {
		if images != nil {
			u.reset(ctx)
			u.say("  %-28s %5.1f s", "nodes restarted", time.Since(began).Seconds())
		}
		return
	}
	step.OK(u.close())
	u.clusterDir = filepath.Join(u.dir, "cluster-of-"+run.Row.Name)
	step.OK(errors.Join(os.RemoveAll(u.clusterDir), os.MkdirAll(u.clusterDir, 0o755)))
	o := step.Get(cluster.Prepare(ctx, filepath.Join(u.o.root, "e2e/k8s"), u.clusterDir, run.Row.Kubernetes, "n1", "n2"))
	o.NoCNI = true
	o.Images = append(o.Images, images...)
	u.cluster = step.Get(cluster.Start(ctx, o))
	u.images, u.kubernetes = images, run.Row.Kubernetes
	u.say("  %-28s %5.1f s", "cluster started", time.Since(began).Seconds())
}

// reset makes the nodes what they were before their last row, for another one with
// the same images: the CNI leaves devices, rules, mounts and programs, which a
// restart takes, files and kinds of object.
func (u *runner) reset(ctx context.Context) {
	step.Get(u.cluster.Kubectl(ctx, "", "delete", "crd", "--all", "--timeout=60s"))
	for _, n := range u.cluster.Members {
		// The node's start puts the reference plugins back.
		step.Get(n.Exec(ctx, "bash", "-c", "rm -rf /etc/cni/net.d/* /opt/cni/bin/* /var/lib/cni /var/lib/podweir"))
		step.OK(n.Restart(ctx))
	}
	for _, n := range u.cluster.Members {
		err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
			return step.Err(u.cluster.Kubectl(ctx, "", "get", "--raw", "/api/v1/nodes/"+n.Name+"/proxy/healthz"))
		})
		step.Say(err, "kubelet of %s", n.Name)
	}
}

// clean says whether nodes have nothing of the last row, so that the next may
// use them.
func (u *runner) clean(ctx context.Context) bool {
	for _, n := range u.cluster.Members {
		out, err := n.Exec(ctx, "bash", "-c", `ls /etc/cni/net.d; ls /run/netns; ip -o link | grep -Ev '^[0-9]+: (lo|eth0)[:@]'; true`)
		if err != nil || out != "" {
			u.say("  %s is not as it was (%v), the next row gets another cluster: %s", n.Name, err, out)
			return false
		}
	}
	return true
}

func (u *runner) close() error {
	if u.cluster == nil {
		return nil
	}
	c := u.cluster
	u.cluster = nil
	return c.Close()
}

// versions are those of the cluster's parts.
func (u *runner) versions(ctx context.Context) (string, error) {
	n := u.cluster.Members[0]
	kubelet, err := u.cluster.Kubectl(ctx, "", "get", "node", n.Name, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}, {.status.nodeInfo.containerRuntimeVersion}")
	helm, noHelm := u.cluster.Helm(ctx, "version", "--template", "{{.Version}}")
	return "Kubernetes " + strings.Replace(kubelet, "containerd://", "containerd ", 1) + ", Helm " + helm, errors.Join(err, noHelm)
}

// probes try a feature of the kernel in a network namespace that goes with them.
var probes = map[string]string{
	"ipvlan":         "ip link add name pw0 type veth peer name pw1 && ip link add link pw0 name pw2 type ipvlan",
	"macvlan":        "ip link add name pw0 type veth peer name pw1 && ip link add link pw0 name pw2 type macvlan",
	"vxlan":          "ip link add name pw2 type vxlan id 1 dstport 8472",
	"8021q":          "ip link add name pw0 type veth peer name pw1 && ip link add link pw0 name pw2 type vlan id 2",
	"vlan filtering": "ip link add name pw2 type bridge vlan_filtering 1",
}

// lacks is the first feature that the kernel does not have.
func lacks(ctx context.Context, features []string) (string, error) {
	for _, f := range features {
		script, ok := probes[f]
		if !ok {
			return "", fmt.Errorf("kernel feature %q has no probe", f)
		}
		if exec.CommandContext(ctx, "unshare", "--net", "bash", "-c", script).Run() != nil {
			return f, ctx.Err()
		}
	}
	return "", nil
}
