// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply

import (
	"cmp"
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/terms"
)

// appendJSON appends what [json.Marshal] makes of a value. json.Marshal first works out how it writes each type
// and keeps that. A process that writes one record has no use for it: it took 5 % of an ADD.
func appendJSON(b []byte, v reflect.Value) ([]byte, error) {
	t := v.Type()
	if t.Kind() != reflect.Pointer && t.NumMethod() > 0 {
		switch is := v.Interface().(type) {
		case attach.Choices:
			return appendChoices(b, is)
		case json.Marshaler, encoding.TextMarshaler:
			return appendAny(b, is)
		}
	}
	switch t.Kind() {
	case reflect.Struct:
		return appendStruct(b, v)
	case reflect.Pointer, reflect.Slice:
		switch {
		case v.IsNil():
			return append(b, "null"...), nil
		case t.Kind() == reflect.Pointer:
			return appendJSON(b, v.Elem())
		case t.Elem().Kind() == reflect.Uint8: // bytes are one string
			return appendAny(b, v.Interface())
		}
		return appendSlice(b, v)
	case reflect.String:
		return appendString(b, v.String())
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, v.Uint(), 10), nil
	default:
		return appendAny(b, v.Interface())
	}
}

func appendAny(b []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(b, text...), err
}

// appendString leaves what has to be escaped to json.Marshal.
func appendString(b []byte, s string) ([]byte, error) {
	if strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' || strings.ContainsRune(`"\<>&`, c) }) {
		return appendAny(b, s)
	}
	return append(append(append(b, '"'), s...), '"'), nil
}

func appendStruct(b []byte, v reflect.Value) ([]byte, error) {
	b = append(b, '{')
	begin := len(b)
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		name, omit, _ := strings.Cut(f.Tag.Get("json"), ",")
		if omit == "omitzero" && isZero(value) || omit == "omitempty" && isEmpty(value) {
			continue
		}
		if len(b) > begin {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), cmp.Or(name, f.Name)...), `":`...)
		var err error
		if b, err = appendJSON(b, value); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// isZero and isEmpty are what json.Marshal calls so.
func isZero(v reflect.Value) bool {
	if is, asked := reflect.TypeAssert[interface{ IsZero() bool }](v); asked {
		return is.IsZero()
	}
	return v.IsZero()
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct:
		return false
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	default:
		return v.IsZero()
	}
}

func appendSlice(b []byte, v reflect.Value) ([]byte, error) {
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendJSON(b, v.Index(i)); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// appendChoices is [attach.Choices.MarshalJSON]: the directions are in the order of their names.
func appendChoices(b []byte, all attach.Choices) ([]byte, error) {
	b = append(b, '{')
	begin := len(b)
	for _, d := range terms.Directions {
		choice, there := all[d]
		if !there {
			continue
		}
		if len(b) > begin {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), d.String()...), `":`...)
		var err error
		if b, err = appendStruct(b, reflect.ValueOf(&choice).Elem()); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}
