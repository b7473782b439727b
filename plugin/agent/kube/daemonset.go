// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/podweir/podweir/plugin/agent/uninstall"
)

// daemonSetFor is how long a watch is kept: as long as the server does by default at most
// (--min-request-timeout, times two).
const daemonSetFor = time.Hour

// DaemonSet implements [uninstall.API] for the DaemonSet of one name. It needs list and
// watch on daemonsets in its namespace, which may be limited to the name.
type DaemonSet struct {
	client          *Client
	namespace, name string
}

// NewDaemonSet returns the API for a DaemonSet.
func NewDaemonSet(client *Client, namespace, name string) *DaemonSet {
	return &DaemonSet{client, namespace, name}
}

func (d *DaemonSet) request() (path string, query url.Values) {
	return "/apis/apps/v1/namespaces/" + url.PathEscape(d.namespace) + "/daemonsets", url.Values{"fieldSelector": {"metadata.name=" + d.name}}
}

// is leaves out bookmarks, and what another party's answer may hold.
func (d *DaemonSet) is(m *manifest) bool { return m.Metadata.Name == d.name }

func (d *DaemonSet) object(m *manifest) uninstall.Object {
	return uninstall.Object{UID: m.Metadata.UID, Deleting: m.Metadata.DeletedAt != ""}
}

// List implements [uninstall.API]. It is not from the server's cache, which may be old: that
// none is there means uninstall.
func (d *DaemonSet) List(ctx context.Context) (found []uninstall.Object, version string, err error) {
	path, query := d.request()
	version, err = d.client.list(ctx, path, query, "DaemonSetList", func(m *manifest) {
		if d.is(m) {
			found = append(found, d.object(m))
		}
	})
	if err != nil {
		return nil, "", fmt.Errorf("DaemonSet %s/%s: %w", d.namespace, d.name, err)
	}
	return found, version, nil
}

// Watch implements [uninstall.API].
func (d *DaemonSet) Watch(ctx context.Context, version string, f func(uninstall.Event)) error {
	path, query := d.request()
	_, err := d.client.follow(ctx, path, query, version, daemonSetFor, func() {}, func(m *manifest, gone bool) {
		if d.is(m) {
			f(uninstall.Event{Object: d.object(m), Gone: gone})
		}
	})
	if err != nil {
		return fmt.Errorf("DaemonSet %s/%s: %w", d.namespace, d.name, err)
	}
	return nil
}
