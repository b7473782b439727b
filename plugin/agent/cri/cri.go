// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package cri asks the container runtime for the network namespaces of pods,
// over its CRI socket; it needs to be allowed to open that, which is root.
package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podweir/podweir/compat/detect"
)

// Errors that callers branch on.
var (
	// ErrNoSandbox means that the runtime has no ready sandbox for a pod.
	ErrNoSandbox = errors.New("no ready sandbox")
	// ErrEnded means beside it that the pod had one, which has ended: it does not run, whatever the API server says yet.
	ErrEnded = errors.New("the last one has ended")
	// ErrNoSocket means that nothing shows which runtime the node has.
	ErrNoSocket = errors.New("no CRI socket")
)

// callTimeout bounds one question: a runtime that starts 50 pods at a time
// answers within some seconds.
const callTimeout = 10 * time.Second

// sockets are where container runtimes listen, in the order in which they are
// looked for: containerd and CRI-O by their default configuration, k3s and
// RKE2, MicroK8s, k0s, cri-dockerd.
var sockets = []string{
	"/run/containerd/containerd.sock",
	"/run/crio/crio.sock",
	"/run/k3s/containerd/containerd.sock",
	"/var/snap/microk8s/common/run/containerd.sock",
	"/run/k0s/containerd.sock",
	"/run/cri-dockerd.sock",
}

// FindSocket returns the socket of the node's runtime, below root, which is "/"
// or where the node's is mounted: the one that the kubelet uses or, where that is not
// known or its directory is not mounted, the first that is there. It returns an error
// that names where it looked, and wraps [ErrNoSocket] unless the kubelet uses one.
func FindSocket(root string) (string, error) {
	candidates, kubelets := sockets, false
	used := detect.KubeletSocket(os.DirFS(root))
	if _, err := os.Stat(filepath.Join(root, filepath.Dir(used))); used != "" && err == nil {
		// Another runtime than the kubelet's may be there, as dockerd's containerd is.
		candidates, kubelets = []string{"/" + used}, true
	}
	for _, path := range candidates {
		path = filepath.Join(root, path)
		if st, err := os.Stat(path); err == nil && st.Mode().Type() == os.ModeSocket {
			return path, nil
		}
	}
	if kubelets {
		return "", fmt.Errorf("the container runtime does not run: there is no %s, which the kubelet uses", candidates[0])
	}
	return "", fmt.Errorf("%w: looked for %s", ErrNoSocket, strings.Join(candidates, ", "))
}

// Sandbox is the network of a pod as the container runtime made it.
type Sandbox struct {
	// ID is the container ID that CNI plugins get.
	ID string
	// NetNSPath is a path in the host's mount namespace.
	NetNSPath string
	// Interfaces are the pod's interfaces that the runtime's CNI result names,
	// without the loopback; none if it does not tell.
	Interfaces []string
}

// Client asks the container runtime, whose socket is looked for until it is there: pods
// that are shaped need none. It outlives a restart of the runtime, and is safe for
// concurrent use.
type Client struct {
	// Socket is looked for below the node's root directory if it is empty.
	Root, Socket string

	// one is held while an answer about one pod is decoded: it has the pod's
	// annotations several times, a megabyte or more.
	one  sync.Mutex
	mu   sync.Mutex
	conn *grpc.ClientConn
}

// open returns the connection, which connects with the first question.
func (c *Client) open() (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		return c.conn, nil
	}
	if c.Socket == "" {
		socket, err := FindSocket(c.Root)
		if err != nil {
			return nil, fmt.Errorf("--cri-socket: %w", err)
		}
		c.Socket = socket
	}
	// Small buffers: most answers are small.
	conn, err := grpc.NewClient("unix://"+c.Socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10),
		grpc.WithNoProxy())
	if err != nil {
		return nil, fmt.Errorf("CRI socket %s: %w", c.Socket, err)
	}
	c.conn = conn
	return conn, nil
}

// Close ends the connection if there is one.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

func ask[Q, A any](ctx context.Context, c *Client, name string,
	call func(runtime.RuntimeServiceClient, context.Context, *Q, ...grpc.CallOption) (*A, error), q *Q, opts ...grpc.CallOption,
) (*A, error) {
	conn, err := c.open()
	if err != nil {
		return nil, err
	}
	answer, err := call(runtime.NewRuntimeServiceClient(conn), ctx, q, opts...)
	if status.Code(err) == codes.Unavailable && !listens(c.Socket) {
		return nil, fmt.Errorf("the container runtime does not run: no program listens on its CRI socket %s; start it, or give the agent the right one with --cri-socket", c.Socket)
	}
	if err != nil {
		return nil, fmt.Errorf("%s at CRI socket %s: %w", name, c.Socket, err)
	}
	return answer, nil
}

func (c *Client) list(ctx context.Context, filter *runtime.PodSandboxFilter) ([]*runtime.PodSandbox, error) {
	list, err := ask(ctx, c, "ListPodSandbox", runtime.RuntimeServiceClient.ListPodSandbox,
		&runtime.ListPodSandboxRequest{Filter: filter}, grpc.MaxCallRecvMsgSize(maxPods))
	return list.GetItems(), err
}

func (c *Client) sandboxStatus(ctx context.Context, id string) (*runtime.PodSandboxStatusResponse, error) {
	return ask(ctx, c, "PodSandboxStatus", runtime.RuntimeServiceClient.PodSandboxStatus,
		&runtime.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
}

// Version returns the runtime's name and version in the form of a node's status,
// such as "containerd://2.1.3".
func (c *Client) Version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	v, err := ask(ctx, c, "Version", runtime.RuntimeServiceClient.Version, &runtime.VersionRequest{})
	if err != nil {
		return "", err
	}
	return v.GetRuntimeName() + "://" + v.GetRuntimeVersion(), nil
}

// Network returns the CNI configuration that the runtime uses now, from its verbose
// status; nil if that does not have it. containerd has it (go-cni's ConfigResult),
// CRI-O does not.
func (c *Client) Network(ctx context.Context) (*detect.RuntimeNetwork, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := ask(ctx, c, "Status", runtime.RuntimeServiceClient.Status, &runtime.StatusRequest{Verbose: true})
	if err != nil {
		return nil, err
	}
	return parseNetwork(answer.GetInfo())
}

// The label by which the kubelet names a sandbox's pod
// (k8s.io/kubelet/pkg/types).
const uidLabel = "io.kubernetes.pod.uid"

// Find returns the ready sandbox of a pod, by the UID that the kubelet gave it.
// It returns an error wrapping [ErrNoSandbox] if there is none, and [ErrEnded] if there was one.
func (c *Client) Find(ctx context.Context, uid string) (Sandbox, error) {
	c.one.Lock()
	defer c.one.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	of := map[string]string{uidLabel: uid}
	list, err := c.ready(ctx, of)
	if err != nil {
		return Sandbox{}, err
	}
	// Of several, which a restart of the node may leave, the youngest is it.
	var found *runtime.PodSandbox
	for _, s := range list {
		if s.GetState() == runtime.PodSandboxState_SANDBOX_READY && (found == nil || s.GetCreatedAt() > found.GetCreatedAt()) {
			found = s
		}
	}
	if found == nil {
		none := fmt.Errorf("%w for pod UID %s at %s", ErrNoSandbox, uid, c.Socket)
		if ended, err := c.in(ctx, runtime.PodSandboxState_SANDBOX_NOTREADY, of); err == nil && len(ended) > 0 {
			none = fmt.Errorf("%w: %w", none, ErrEnded)
		}
		return Sandbox{}, none
	}
	answer, err := c.sandboxStatus(ctx, found.GetId())
	if err != nil {
		return Sandbox{}, err
	}
	s, err := parseInfo(answer.GetInfo())
	s.ID = found.GetId()
	if err != nil {
		return s, fmt.Errorf("sandbox %s at %s: %w", s.ID, c.Socket, err)
	}
	return s, nil
}

// Knows says whether the runtime knows of a sandbox, ready or not, by its ID. It does
// not ask for all of them: each comes with its annotations, and 20 pods can have more
// than an answer may hold.
func (c *Client) Knows(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := c.list(ctx, &runtime.PodSandboxFilter{Id: id})
	return len(list) > 0, err
}

// Runs says whether the runtime knows of a ready sandbox, by its ID: it keeps one that has ended until the kubelet clears up,
// which it does each minute.
func (c *Client) Runs(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ready := &runtime.PodSandboxStateValue{State: runtime.PodSandboxState_SANDBOX_READY}
	list, err := c.list(ctx, &runtime.PodSandboxFilter{Id: id, State: ready})
	return len(list) > 0, err
}

func listens(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err == nil {
		_ = conn.Close()
	}
	return !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED)
}
