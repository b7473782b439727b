// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package ctypes writes C declarations of kernel types from BTF, as
// `bpftool btf dump format c` does for all of them; here for a few and what
// they hold.
package ctypes

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// Write writes the declarations of types and enumerators by name, each behind
// what it holds. Of what it only points to it writes the name.
func Write(w io.Writer, spec *btf.Spec, types, enumerators []string) error {
	d := &dumper{w: w, done: make(map[string]bool)}
	for _, name := range types {
		all, err := spec.AnyTypesByName(name)
		if err != nil {
			return fmt.Errorf("type %s: %w", name, err)
		}
		d.need(all[0])
	}
	for t, err := range spec.All() {
		if err != nil {
			return err
		}
		e, ok := t.(*btf.Enum)
		if !ok {
			continue
		}
		for _, v := range e.Values {
			for _, name := range enumerators {
				if v.Name == name && !d.done["enumerator "+name] {
					d.enumerators(e)
				}
			}
		}
	}
	for _, name := range enumerators {
		if !d.done["enumerator "+name] {
			return fmt.Errorf("enumerator %s: %w", name, btf.ErrNotFound)
		}
	}
	return d.err
}

type dumper struct {
	w    io.Writer
	done map[string]bool
	err  error
}

func (d *dumper) printf(format string, args ...any) {
	_, err := fmt.Fprintf(d.w, format, args...)
	d.err = errors.Join(d.err, err)
}

// once says whether a declaration is to be written now.
func (d *dumper) once(what string) bool {
	was := d.done[what]
	d.done[what] = true
	return !was
}

// need writes what has to be declared before a type can be used.
func (d *dumper) need(t btf.Type) {
	switch t := t.(type) {
	case *btf.Typedef:
		d.need(t.Type)
		if d.once("typedef " + t.Name) {
			d.printf("typedef %s;\n", declare(t.Type, t.Name))
		}
	case *btf.Struct:
		d.composite("struct", t.Name, t.Members)
	case *btf.Union:
		d.composite("union", t.Name, t.Members)
	case *btf.Enum:
		d.enumerators(t)
	case *btf.Array:
		d.need(t.Type)
	case *btf.Const:
		d.need(t.Type)
	case *btf.Volatile:
		d.need(t.Type)
	case *btf.Pointer:
		d.target(t.Target)
	}
}

// target names what is pointed to.
func (d *dumper) target(t btf.Type) {
	switch t := t.(type) {
	case *btf.Struct:
		if t.Name != "" && d.once("struct "+t.Name+";") {
			d.printf("struct %s;\n", t.Name)
		}
	case *btf.Union:
		if t.Name != "" && d.once("union "+t.Name+";") {
			d.printf("union %s;\n", t.Name)
		}
	default:
		d.need(t)
	}
}

func (d *dumper) composite(kind, name string, members []btf.Member) {
	for _, m := range members {
		d.need(m.Type)
	}
	if name != "" && d.once(kind+" "+name) {
		d.printf("%s %s %s;\n", kind, name, body(members))
	}
}

func (d *dumper) enumerators(e *btf.Enum) {
	if !d.once("enumerator " + e.Values[0].Name) {
		return
	}
	d.printf("enum %s {\n", e.Name)
	for _, v := range e.Values {
		d.done["enumerator "+v.Name] = true
		d.printf("\t%s = %d,\n", v.Name, int64(v.Value))
	}
	d.printf("};\n")
}

func body(members []btf.Member) string {
	var b strings.Builder
	b.WriteString("{\n")
	for _, m := range members {
		fmt.Fprintf(&b, "\t%s", declare(m.Type, m.Name))
		if m.BitfieldSize > 0 {
			fmt.Fprintf(&b, " : %d", m.BitfieldSize)
		}
		b.WriteString(";\n")
	}
	b.WriteString("}")
	return b.String()
}

// declare is the declaration of a name, "" for a member without one.
func declare(t btf.Type, name string) string {
	switch t := t.(type) {
	case *btf.Pointer:
		switch t.Target.(type) {
		case *btf.Array, *btf.FuncProto:
			return "void *" + name // nobody looks behind it
		}
		return declare(t.Target, "*"+name)
	case *btf.Array:
		return declare(t.Type, fmt.Sprintf("%s[%d]", name, t.Nelems))
	case *btf.Const:
		return "const " + declare(t.Type, name)
	case *btf.Volatile:
		return "volatile " + declare(t.Type, name)
	case *btf.Struct:
		return composite("struct", t.Name, t.Members, name)
	case *btf.Union:
		return composite("union", t.Name, t.Members, name)
	case *btf.Enum:
		return "enum " + t.Name + " " + name
	case *btf.Void:
		return "void " + name
	default:
		return t.TypeName() + " " + name
	}
}

func composite(kind, tag string, members []btf.Member, name string) string {
	if tag != "" {
		return kind + " " + tag + " " + name
	}
	return kind + " " + body(members) + " " + name
}
