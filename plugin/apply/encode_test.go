// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// A record is written as encoding/json writes it, whatever it has.
func TestRecordIsWrittenAsByEncodingJSON(t *testing.T) {
	records := map[string]*apply.Record{
		"empty": {}, "full": full(t, "a"),
		"empty lists": {Choices: attach.Choices{terms.Ingress: {Majors: []uint16{}, MadeClsact: []terms.Side{}}}, Attached: time.Time{}.Local()},
	}
	for _, text := range []string{"<", ">", "&", `"`, `\`, "\n", "\x7f", "ü", "\u2028", "\xff"} {
		records["with "+text] = full(t, text)
	}
	for name, r := range records {
		want, err := json.Marshal(r)
		must.OK(t, err)
		if got, err := r.Marshal(); err != nil || string(got) != string(want) {
			t.Errorf("%s: Marshal = %s, %v, want\n%s", name, got, err, want)
		}
	}
}

// full is a record in which everything is set.
func full(t *testing.T, text string) *apply.Record {
	t.Helper()
	r := new(apply.Record)
	fill(t, reflect.ValueOf(r).Elem(), text)
	return r
}

func fill(t *testing.T, v reflect.Value, text string) {
	t.Helper()
	switch is := v.Addr().Interface().(type) {
	case *time.Time:
		*is = time.Date(2026, 11, 30, 2, 3, 4, 5e6, time.UTC)
		return
	case *netip.Prefix:
		*is = netip.MustParsePrefix("2001:db8::/32")
		return
	case *attach.Choices:
		*is = make(attach.Choices)
		for _, d := range terms.Directions {
			var c attach.Choice
			fill(t, reflect.ValueOf(&c).Elem(), text)
			(*is)[d] = c
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field, text)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), text)
		fill(t, v.Index(1), text)
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(-7)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	default:
		t.Fatalf("nothing to fill a %v with", v.Type())
	}
}
