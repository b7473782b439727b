// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// cluster is the name of the kind cluster.
const cluster = "podweir"

// workImage is the image of the pods that make traffic.
const workImage = "localhost/podweir/work:1"

// options say how a row is run.
type options struct {
	root, registry string
	dryRun, keep   bool
	// out is where the result and the logs of every component go; nowhere if empty.
	out string
	// dir holds the row's temporary files.
	dir string
	// notes are what the present step measured.
	notes []string
}

// row makes the cluster, runs every step, and removes the cluster.
func (o *options) row(ctx context.Context, r *row) (err error) {
	if r.cni.Existing && o.registry == "" {
		return fmt.Errorf("row %s runs in a cluster that exists: -registry must name where its nodes find the images", r.Name)
	}
	if o.dir, err = os.MkdirTemp("", "podweir-hosted-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	if !r.cni.Existing {
		// Every command finds the cluster by this, the scripts of others too.
		if err := os.Setenv("KUBECONFIG", filepath.Join(o.dir, "kubeconfig")); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.remove(context.WithoutCancel(ctx))) }()
	}
	res := result{Row: r.Name, Date: time.Now().UTC().Format(time.DateOnly)}
	defer func() { err = errors.Join(err, res.write(o.out)) }()
	for _, step := range []struct {
		name string
		do   func(context.Context, *row) error
	}{
		{"make the cluster and install the primary CNI", o.install},
		{"bring the images to the nodes", o.images},
		{"install podweir", o.podweir},
		{"doctor finds no fault", o.doctor},
		{"limits and network policy hold", o.checkPods},
		{"keep the logs", o.keepLogs},
		{"uninstall podweir", o.uninstall},
	} {
		fmt.Println("==", step.name)
		began := time.Now()
		o.notes = nil
		err := step.do(ctx, r)
		res.add(step.name, time.Since(began), o.notes, err)
		if err != nil {
			o.diagnose(context.WithoutCancel(ctx), r)
			return fmt.Errorf("row %s: %s: %w", r.Name, step.name, err)
		}
		fmt.Printf("== %s: %.0f s\n", step.name, time.Since(began).Seconds())
	}
	return nil
}

// install makes the cluster and waits until the CNI has made its nodes ready.
func (o *options) install(ctx context.Context, r *row) error {
	if !r.cni.Existing && !r.cni.OwnCluster {
		config, err := r.kindConfig()
		if err != nil {
			return err
		}
		file := filepath.Join(o.dir, "kind.yaml")
		fmt.Printf("%s:\n%s", file, config)
		if err := os.WriteFile(file, config, 0o644); err != nil {
			return err
		}
		if err := o.run(ctx, o.kind(), "create", "cluster", "--name", cluster, "--config", file); err != nil {
			return err
		}
	}
	for _, c := range r.commands(o.dir) {
		if err := o.run(ctx, c...); err != nil {
			return err
		}
	}
	return o.all(ctx,
		"kubectl wait --for=condition=Ready nodes --all --timeout=10m",
		"kubectl get nodes -o wide",
		"kubectl get pods --all-namespaces -o wide")
}

// images loads podweir's image and that of the pods into the nodes, or nowhere
// if a registry has them.
func (o *options) images(ctx context.Context, r *row) error {
	if r.cni.Existing {
		return nil
	}
	work := filepath.Join(o.dir, "work.tar")
	return errors.Join(
		o.run(ctx, "tar", "-C", filepath.Join(o.root, "bin/tools"), "-cf", work, "work"),
		o.run(ctx, "docker", "import", "--change", `ENTRYPOINT ["/work"]`, work, workImage),
		o.run(ctx, o.kind(), "load", "docker-image", "--name", cluster, workImage),
		o.run(ctx, o.kind(), "load", "image-archive", "--name", cluster, filepath.Join(o.root, "bin/image/podweir-docker.tar")))
}

// podweir installs the chart of this checkout.
func (o *options) podweir(ctx context.Context, r *row) error {
	command := []string{
		"helm", "install", "podweir", filepath.Join(o.root, "chart"), "--namespace", "kube-system",
		"-f", filepath.Join(o.root, "chart/values", r.cni.Values+".yaml"),
	}
	if r.cni.Existing {
		command = append(command, "--set", "image.registry="+o.registry)
	} else {
		command = append(command, "--set", "image.pullPolicy=Never")
	}
	return o.run(ctx, append(command, "--wait", "--timeout", "5m")...)
}

// doctor runs it on every node.
func (o *options) doctor(ctx context.Context, _ *row) error {
	pods, err := o.output(ctx, "", "kubectl", "-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=podweir", "-o", "name")
	if o.dryRun {
		pods = "POD"
	}
	for pod := range strings.FieldsSeq(pods) {
		err = errors.Join(err, o.run(ctx, "kubectl", "-n", "kube-system", "exec", pod, "--", "podweir", "doctor"))
	}
	return err
}

func (o *options) uninstall(ctx context.Context, r *row) error {
	return errors.Join(
		o.all(ctx, "helm uninstall podweir --namespace kube-system --wait --timeout 5m"),
		o.reachable(ctx, "client", "server", true),
		o.removePods(ctx, r))
}

func (o *options) remove(ctx context.Context) error {
	if o.keep {
		return nil
	}
	return o.run(ctx, o.kind(), "delete", "cluster", "--name", cluster)
}

// diagnose prints and keeps what helps to understand a failure; its own failures do
// not matter.
func (o *options) diagnose(ctx context.Context, r *row) {
	_ = o.keepLogs(ctx, r)
	_ = o.all(ctx,
		"kubectl get nodes,pods --all-namespaces -o wide",
		"kubectl get events --all-namespaces --sort-by=.lastTimestamp",
		"kubectl -n kube-system logs -l app.kubernetes.io/name=podweir --tail=200 --prefix")
}

// keepLogs writes the logs of every component.
func (o *options) keepLogs(ctx context.Context, r *row) error {
	if o.out == "" {
		return nil
	}
	dir := filepath.Join(o.out, "logs")
	if r.cni.Existing {
		return o.all(ctx, "kubectl cluster-info dump --namespaces kube-system,default --output-directory "+dir)
	}
	return o.run(ctx, o.kind(), "export", "logs", "--name", cluster, dir)
}

// kind is the program that "make hosted" builds.
func (o *options) kind() string { return filepath.Join(o.root, "bin/tools/kind") }

// all runs commands whose words hold no space.
func (o *options) all(ctx context.Context, commands ...string) error {
	for _, c := range commands {
		if err := o.run(ctx, strings.Fields(c)...); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) run(ctx context.Context, command ...string) error {
	_, err := o.exec(ctx, "", os.Stdout, command)
	return err
}

// output returns what a command prints; it is empty in a dry run.
func (o *options) output(ctx context.Context, stdin string, command ...string) (string, error) {
	return o.exec(ctx, stdin, io.Discard, command)
}

// exec prints a command and runs it, unless this is a dry run.
func (o *options) exec(ctx context.Context, stdin string, show io.Writer, command []string) (string, error) {
	fmt.Println("+", strings.Join(command, " "))
	if o.dryRun {
		return "", nil
	}
	var out, problem bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), io.MultiWriter(&out, show), io.MultiWriter(&problem, os.Stderr)
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, strings.TrimSpace(problem.String()))
	}
	return out.String(), nil
}
