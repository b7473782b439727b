// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package metrics_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/agent/metrics"
	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var _ = mark.EveryTest(mark.NightlyKernels, "hardly anything in the package depends on the kernel")

func onePod() metrics.Shaped {
	return metrics.Shaped{Failed: 3, Interfaces: []metrics.Interface{{
		Namespace: "default", Pod: "web", Name: "eth0",
		Directions: []status.Direction{{
			Limit: terms.Limit{
				Direction: terms.Name(terms.Egress), Rate: 10e6, Burst: 12500, Enforce: terms.Name(terms.EnforceLimit), Policy: terms.Name(terms.PolicyStrict),
				Queue: terms.Name(terms.QueueTBF), Mode: terms.Name(terms.ModeQdisc), Side: terms.Name(terms.SidePod),
			},
			Counters: []datapath.Counter{
				{Disposition: "light", Packets: 7, Bytes: 700},
				{Disposition: "paced"},
				{Disposition: "exempt"},
				{Disposition: "failed-open-config", Packets: 1, Bytes: 60},
			},
			Waits: []datapath.Wait{
				{Band: "light"},
				{Band: "heavy", Packets: 9, Seconds: 0.5, Below: [len(datapath.WaitBounds)]uint64{1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 2, 8: 2, 9: 4, 10: 8, 11: 8, 12: 9, 13: 9}},
			},
			Qdisc: &engine.QueueStatistics{Stats: queue.Stats{Packets: 5, Bytes: 500, BacklogBytes: 200, Drops: 2}},
		}},
	}}}
}

// of is a registry of these pods alone.
func of(pods func() (metrics.Shaped, error)) http.Handler {
	return metrics.New(metrics.Config{Log: slog.New(slog.DiscardHandler), Pods: pods}).Handler()
}

func full(p metrics.Shaped, err error) http.Handler {
	m := metrics.New(metrics.Config{
		Log: slog.New(slog.DiscardHandler), Pods: func() (metrics.Shaped, error) { return p, err },
		Unshaped: func() map[string]int { return map[string]int{"host-network": 2} },
		Enforced: func() []mailbox.Enforced {
			return []mailbox.Enforced{
				{Namespace: "default", Pod: "web", Direction: terms.Egress, Reason: "exceeded"},
				{Namespace: "default", Pod: "web", Direction: terms.Ingress, Enforced: true},
			}
		},
		Held: func() []mailbox.Held {
			return []mailbox.Held{{Namespace: "default", Pod: "web", Interface: "eth0", Direction: terms.Egress, Time: 2500 * time.Millisecond}}
		},
		Groups: func() ([]mailbox.Group, error) {
			return []mailbox.Group{{
				Group:     terms.Group{Namespace: "default", Direction: terms.Name(terms.Egress), Limit: 200e6, Pods: 3, Outside: []string{"default/fq"}},
				SentBytes: 900, Held: 1500 * time.Millisecond, DroppedPackets: 6,
			}}, nil
		},
		Failures: func() (int, error) { return 4, nil },
		Ready:    func() map[string]bool { return map[string]bool{"delivery": true, "api": false} },
		Delivery: func() string { return "chain" },
		Doctor: func() (*doctor.Report, time.Time) {
			return &doctor.Report{Checks: []doctor.Outcome{{Code: "PW101", Category: doctor.CategoryNode, Status: doctor.Fail}}}, time.Unix(1000, 0)
		},
	})
	m.ObserveReconcile("mended", 3*time.Millisecond)
	m.ObserveHook("RunPodSandbox", 40*time.Millisecond, errors.New("no"))
	return m.Handler()
}

func scrape(tb testing.TB, h http.Handler) string {
	tb.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(tb.Context(), http.MethodGet, "/metrics", nil))
	must.Be(tb, "status", http.StatusOK, w.Code)
	return w.Body.String()
}

// own are the lines of podweir's metrics, without comments and without the
// histograms and what differs from run to run.
func own(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "podweir_") && !regexp.MustCompile(`_seconds_[^t]|build_info|read_duration`).MatchString(line) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	slices.Sort(out)
	return out
}

func TestScrape(t *testing.T) {
	t.Parallel()
	text := scrape(t, full(onePod(), nil))
	const pod = `direction="egress",interface="eth0",`
	const name = `namespace="default",pod="web"`
	disposition := func(d string) string {
		return `{direction="egress",disposition="` + d + `",interface="eth0",` + name + `}`
	}
	must.Match(t, "scrape", []string{
		`podweir_cni_failures 4`,
		`podweir_delivery_info{delivery="chain"} 1`,
		`podweir_doctor_check{category="node",code="PW101",result="fail"} 1`,
		`podweir_doctor_last_run_timestamp_seconds 1000`,
		`podweir_namespace_dropped_packets_total{direction="egress",namespace="default"} 6`,
		`podweir_namespace_held_seconds_total{direction="egress",namespace="default"} 1.5`,
		`podweir_namespace_limit_bits_per_second{direction="egress",namespace="default"} 2e+08`,
		`podweir_namespace_pods{direction="egress",namespace="default",share="no"} 1`,
		`podweir_namespace_pods{direction="egress",namespace="default",share="yes"} 3`,
		`podweir_namespace_sent_bytes_total{direction="egress",namespace="default"} 900`,
		`podweir_observed_pods 0`,
		`podweir_pod_burst_bytes{` + pod + name + `} 12500`,
		`podweir_pod_bytes_total` + disposition("failed-open-config") + ` 60`,
		`podweir_pod_bytes_total` + disposition("light") + ` 700`,
		`podweir_pod_bytes_total` + disposition("paced") + ` 0`,
		`podweir_pod_enforced{direction="egress",` + name + `,reason="exceeded"} 0`,
		`podweir_pod_enforced{direction="ingress",` + name + `,reason=""} 1`,
		`podweir_pod_held_seconds_total{` + pod + name + `} 2.5`,
		`podweir_pod_limit_bits_per_second{` + pod + name + `} 1e+07`,
		`podweir_pod_mode_info{direction="egress",enforce="limit",interface="eth0",mode="qdisc",` + name + `,policy="strict",queue="tbf",side="pod"} 1`,
		`podweir_pod_packets_total` + disposition("failed-open-config") + ` 1`,
		`podweir_pod_packets_total` + disposition("light") + ` 7`,
		`podweir_pod_packets_total` + disposition("paced") + ` 0`,
		`podweir_pod_queue_backlog_bytes{` + pod + name + `} 200`,
		`podweir_pod_queue_dropped_packets_total{` + pod + name + `} 2`,
		`podweir_pod_queue_sent_bytes_total{` + pod + name + `} 500`,
		`podweir_pod_queue_sent_packets_total{` + pod + name + `} 5`,
		`podweir_ready{part="api"} 0`,
		`podweir_ready{part="delivery"} 1`,
		`podweir_shaped_pods 1`,
		`podweir_unreadable_interfaces 3`,
		`podweir_unshaped_pods{reason="host-network"} 2`,
	}, own(text))
	for _, line := range []string{
		`podweir_reconcile_duration_seconds_bucket{outcome="mended",le="0.0025"} 0`,
		`podweir_reconcile_duration_seconds_bucket{outcome="mended",le="0.005"} 1`,
		`podweir_pod_wait_seconds_bucket{band="heavy",` + pod + name + `,le="6.5536e-05"} 0`,
		`podweir_pod_wait_seconds_bucket{band="heavy",` + pod + name + `,le="0.000131072"} 1`,
		`podweir_pod_wait_seconds_bucket{band="heavy",` + pod + name + `,le="0.033554432"} 4`,
		`podweir_pod_wait_seconds_bucket{band="heavy",` + pod + name + `,le="+Inf"} 9`,
		`podweir_pod_wait_seconds_sum{band="heavy",` + pod + name + `} 0.5`,
		`podweir_nri_hook_duration_seconds_count{hook="RunPodSandbox",result="error"} 1`,
	} {
		must.Have(t, "scrape", text, line+"\n")
	}
	must.Have(t, "scrape", text, `!podweir_pod_wait_seconds_count{band="light"`) // it has no packets
}

// A pod that is observed only counts as such, and has series of what would be from the
// start.
func TestScrapeOfAnObservedPod(t *testing.T) {
	t.Parallel()
	p := onePod()
	d := &p.Interfaces[0].Directions[0]
	d.Enforce, d.Queue, d.Qdisc = terms.Name(terms.EnforceObserve), terms.Name(terms.QueueNone), nil
	d.Counters = []datapath.Counter{{Disposition: "would-wait"}, {Disposition: "would-drop"}, {Disposition: "dropped-policed"}}
	must.Have(t, "scrape", scrape(t, full(p, nil)),
		"podweir_observed_pods 1\n", "podweir_shaped_pods 0\n", `enforce="observe"`,
		`podweir_pod_packets_total{direction="egress",disposition="would-wait",`, `podweir_pod_bytes_total{direction="egress",disposition="would-drop",`,
		"!dropped-policed") // which cannot happen
}

// The pages say how many series a pod has at least and at most: a Prometheus server is
// sized by that.
func TestSeriesOfAPod(t *testing.T) {
	t.Parallel()
	const least, most = 30, 98
	for want, packets := range map[int]uint64{least: 0, most: 1} {
		var directions []status.Direction
		var enforced []mailbox.Enforced
		var held []mailbox.Held
		for _, d := range terms.Directions {
			directions = append(directions, status.Direction{
				Limit: terms.Limit{
					Direction: terms.Name(d), Enforce: terms.Name(terms.EnforceLimit), Policy: terms.Name(terms.PolicyStrict), Queue: terms.Name(terms.QueueTBF),
					Mode: terms.Name(terms.ModeQdisc), Side: terms.Name(terms.SidePod),
				},
				Counters: []datapath.Counter{{Disposition: "light"}, {Disposition: "paced"}, {Disposition: "dropped-horizon"}, {Disposition: "exempt"}},
				Waits:    []datapath.Wait{{Band: "light", Packets: packets}, {Band: "heavy", Packets: packets}},
				Qdisc:    &engine.QueueStatistics{},
			})
			enforced = append(enforced, mailbox.Enforced{Namespace: "default", Pod: "web", Direction: d, Enforced: true})
			held = append(held, mailbox.Held{Namespace: "default", Pod: "web", Interface: "eth0", Direction: d})
		}
		text := scrape(t, metrics.New(metrics.Config{
			Log: slog.New(slog.DiscardHandler),
			Pods: func() (metrics.Shaped, error) {
				return metrics.Shaped{Interfaces: []metrics.Interface{{Namespace: "default", Pod: "web", Name: "eth0", Directions: directions}}}, nil
			},
			Enforced: func() []mailbox.Enforced { return enforced },
			Held:     func() []mailbox.Held { return held },
		}).Handler())
		must.Be(t, fmt.Sprintf("series with %d packets in each band", packets), want, strings.Count(text, `pod="web"`))
	}
	for file, text := range map[string]string{
		"reference/metrics.md": fmt.Sprintf("has %d series for each pod", least),
		"howto/size-limits.md": fmt.Sprintf("%d to %d time series", least, most),
	} {
		must.Have(t, file, string(must.Get(os.ReadFile(filepath.Join("..", "..", "..", "docs", file)))(t)), text)
	}
}

// What cannot be read is left out; the rest is answered.
func TestScrapeSurvivesErrors(t *testing.T) {
	t.Parallel()
	must.Have(t, "scrape without pods", scrape(t, full(metrics.Shaped{}, errors.New("no bpffs"))), "!podweir_pod_limit", "podweir_cni_failures 4\n")
}

var (
	typeLine = regexp.MustCompile(`(?m)^# TYPE (podweir_\S+) (\S+)$`)
	tableRow = regexp.MustCompile("(?m)^\\| `(podweir_[a-z_]+)` \\| (\\w+) \\| (.*?) ?\\| ")
	quoted   = regexp.MustCompile("`([a-z]+)`")
	labelled = regexp.MustCompile(`([a-z]+)="`)
)

// The page lists exactly the metrics that are exported, with their types and
// labels.
func TestDocsNameEveryMetric(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "metrics.md")))(t)
	written := map[string]string{}
	for _, row := range tableRow.FindAllStringSubmatch(string(page), -1) {
		var labels []string
		for _, l := range quoted.FindAllStringSubmatch(row[3], -1) {
			labels = append(labels, l[1])
		}
		if strings.HasPrefix(row[1], "podweir_pod_") && row[1] != "podweir_pod_enforced" { // which names its own
			labels = append(labels, "namespace", "pod", "interface", "direction")
		}
		slices.Sort(labels)
		written[row[1]] = fmt.Sprint(row[2], labels)
	}
	text := scrape(t, full(onePod(), nil))
	exported := map[string]string{}
	for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
		sample := regexp.MustCompile(`(?m)^` + m[1] + `(_bucket)?(\{.*\})? `).FindString(text)
		var labels []string
		for _, l := range labelled.FindAllStringSubmatch(sample, -1) {
			if l[1] != "le" {
				labels = append(labels, l[1])
			}
		}
		slices.Sort(labels)
		exported[m[1]] = fmt.Sprint(m[2], labels)
	}
	must.Match(t, "metrics.md", exported, written)
}

// A name says its unit, as Prometheus asks.
func TestNamesEndInUnits(t *testing.T) {
	t.Parallel()
	text := scrape(t, full(onePod(), nil))
	fits := regexp.MustCompile(`(_bytes|_packets|_seconds|_bits_per_second|_info|_pods|_interfaces|_failures|_check|_ready|_enforced)$`)
	for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
		name, total := strings.CutSuffix(m[1], "_total")
		if total != (m[2] == "counter") || !fits.MatchString(name) {
			t.Errorf("%s %s does not end in a unit that fits", m[2], m[1])
		}
	}
}

// A name that Prometheus does not accept costs its own series, not the scrape.
func TestNameThatIsNotUTF8(t *testing.T) {
	m := metrics.New(metrics.Config{
		Log: slog.New(slog.DiscardHandler),
		Enforced: func() []mailbox.Enforced {
			return []mailbox.Enforced{
				{Namespace: "default", Pod: "\xff", Direction: terms.Egress},
				{Namespace: "default", Pod: "web", Direction: terms.Egress},
			}
		},
		Ready: func() map[string]bool { return map[string]bool{"api": true} },
	})
	must.Have(t, "scrape", scrape(t, m.Handler()), `podweir_ready{part="api"} 1`, `pod="web"`, "!\xff") // all but the pod with the bad name
}

// Readers beside each other get one page, and a slow one keeps no other waiting.
func TestReadersShareAPage(t *testing.T) {
	t.Parallel()
	var reads atomic.Int32
	h := of(func() (metrics.Shaped, error) { reads.Add(1); return onePod(), nil })
	stuck := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		begun := make(chan struct{})
		wg.Go(func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
			h.ServeHTTP(&slowWriter{ResponseRecorder: httptest.NewRecorder(), begun: begun, until: stuck}, r)
		})
		<-begun
	}
	for range 8 {
		must.Have(t, "scrape", scrape(t, h), "podweir_shaped_pods 1\n")
	}
	must.Within(t, "times that the pods are read for 16 readers", 1, 8, reads.Load())
	close(stuck)
	wg.Wait()
}

// slowWriter says when it gets the first bytes, and takes them when it may.
type slowWriter struct {
	*httptest.ResponseRecorder
	begun, until chan struct{}
	once         sync.Once
}

func (w *slowWriter) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.begun) })
	<-w.until
	return w.ResponseRecorder.Write(b)
}

func TestPageIsCompressedForWhoAccepts(t *testing.T) {
	t.Parallel()
	h := full(onePod(), nil)
	plain := scrape(t, h)
	for accepted, want := range map[string]bool{
		"gzip": true, "deflate, gzip;q=0.5": true, "gzip ; q=1": true, "": false, "identity": false, "gzip;q=0": false, "gzip; q=0.00": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept-Encoding", accepted)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var body io.Reader = w.Body
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("Accept-Encoding %q: compressed %v, want %v", accepted, got, want)
			continue
		}
		if want {
			body = must.Get(gzip.NewReader(w.Body))(t)
		}
		must.Be(t, fmt.Sprintf("the text for Accept-Encoding %q", accepted), plain, string(must.Get(io.ReadAll(body))(t)))
		if kind := w.Header().Get("Content-Type"); !strings.HasPrefix(kind, "text/plain; version=0.0.4") {
			t.Errorf("Content-Type %q", kind)
		}
	}
}

// node is a namespace that plays the host.
type node struct {
	*testutil.NetNS
	paths engine.Paths
}

func newNode(tb testing.TB) *node {
	tb.Helper()
	return &node{
		NetNS: testutil.NewNetNS(tb),
		paths: engine.Paths{Pins: filepath.Join(testutil.BPFFS(tb), "podweir"), Run: tb.TempDir()},
	}
}

// shape makes a pod and gives it 10 Mbit/s in both directions.
func (n *node) shape(tb testing.TB, index int, name string) *testutil.NetNS {
	tb.Helper()
	pod := testutil.NewNetNS(tb)
	gateway, addr := fmt.Sprintf("10.77.%d.1", index), fmt.Sprintf("10.77.%d.2", index)
	testutil.VethPair(tb,
		testutil.End{NetNS: pod, Name: "eth0", CIDRs: []string{addr + "/24"}},
		testutil.End{NetNS: n.NetNS, Name: fmt.Sprintf("veth%d", index), CIDRs: []string{gateway + "/24"}})
	n.do(tb, func(node *engine.Node) error {
		_, err := node.Ensure(tb.Context(), &apply.Want{
			ID:        attach.ID{Network: "net", ContainerID: fmt.Sprintf("container-%d", index), IfName: "eth0"},
			NetNSPath: pod.Path(), Names: []string{"eth0"}, Pod: "default/" + name,
			Config: &shaping.Config{Egress: shaping.DefaultLimit(10e6), Ingress: shaping.DefaultLimit(10e6)},
		})
		return err
	})
	return pod
}

func (n *node) do(tb testing.TB, f func(*engine.Node) error) {
	tb.Helper()
	err := n.Do(func() error {
		node, err := engine.Open(n.paths)
		if err != nil {
			return err
		}
		defer node.Close()
		return f(node)
	})
	must.OK(tb, err)
}

// reader reads the pins from the namespace that plays the host.
func (n *node) reader() func() (metrics.Shaped, error) {
	pins := metrics.NewPins(n.paths)
	return func() (all metrics.Shaped, err error) {
		err = n.Do(func() error { all, err = pins.Read(); return err })
		return all, err
	}
}

func mustRead(tb testing.TB, read func() (metrics.Shaped, error)) []metrics.Interface {
	tb.Helper()
	all := must.Get(read())(tb)
	must.Be(tb, "interfaces that cannot be read", 0, all.Failed)
	return all.Interfaces
}

func TestPrivilegedPinsCount(t *testing.T) {
	n := newNode(t)
	pod := n.shape(t, 1, "pod-1")
	r := n.reader()
	pod.Run(t, "ping", "-c", "5", "-i", "0.01", "10.77.1.1")
	all := mustRead(t, r)
	if len(all) != 1 || all[0].Namespace != "default" || all[0].Pod != "pod-1" || len(all[0].Directions) != 2 {
		t.Fatalf("Read() = %+v, want one pod with two directions", all)
	}
	for _, d := range all[0].Directions {
		light := uint64(0)
		for _, c := range d.Counters {
			if c.Disposition == "light" {
				light = c.Packets
			}
		}
		if d.Rate != 10e6 || light < 5 || d.Qdisc == nil || d.Qdisc.Packets < 5 {
			t.Errorf("%s = %+v, want 10 Mbit/s and the packets of five pings", d.Direction, d)
		}
	}
	// A change of the limit is told at the next scrape.
	n.do(t, func(node *engine.Node) error {
		_, err := node.Set(t.Context(), attach.ID{Network: "net", ContainerID: "container-1", IfName: "eth0"},
			func(c *shaping.Config) error { c.Egress.Rate = 20e6; return nil })
		return err
	})
	rate := func() uint64 {
		i := slices.IndexFunc(mustRead(t, r)[0].Directions, func(d status.Direction) bool { return d.Direction.Is == terms.Egress })
		return uint64(mustRead(t, r)[0].Directions[i].Rate)
	}
	must.Be(t, "rate after set", 20e6, rate())
	// The pod gets another sandbox while the first one lingers: the new one is told, whatever its name.
	n.shape(t, 0, "pod-1")
	must.Be(t, "rate of the new sandbox", 10e6, rate())
}

// A pod that is gone has no series and is kept alive by nothing, although its
// pins are still there.
func TestPrivilegedPinsForgetThePodsThatAreGone(t *testing.T) {
	n := newNode(t)
	n.shape(t, 1, "pod-1")
	var path string
	t.Run("pod", func(t *testing.T) {
		path = n.shape(t, 2, "pod-2").Path()
		must.Len(t, "pods", 2, mustRead(t, n.reader()))
	})
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err == nil {
		t.Fatalf("namespace %s is still there", path)
	}
	r := n.reader()
	must.Be(t, "the pod", "pod-1", must.Len(t, "pods", 1, mustRead(t, r))[0].Pod)
	must.Have(t, "scrape", scrape(t, of(r)), "!pod-2", "podweir_shaped_pods 1\n")
}
