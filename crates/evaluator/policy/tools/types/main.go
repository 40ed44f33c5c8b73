// Command types records the shape of the built-in kinds out of the Go types of the API server, and cases for the Rust code
// that uses it. Run it in its directory: `go run .` writes both files, `go run . -check` compares them and changes nothing.
//
//	../../src/normalize/types.txt    kinds and types
//	../../tests/data/normalize.jsonl objects before and after a round trip through the Go types
//
// The kinds are those of ../../src/kinds/builtin.tsv, which `go run . -record-kinds` writes.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

const (
	kindsFile = "../../src/kinds/builtin.tsv"
	typesFile = "../../src/normalize/types.txt"
	casesFile = "../../tests/data/normalize.jsonl"
	samples   = "manifests.yaml"
)

func main() {
	check := flag.Bool("check", false, "compare the files and change nothing")
	record := flag.Bool("record-kinds", false, "write the table of kinds first, which downloads 400 MB")
	flag.Parse()
	var err error
	if *record {
		err = recordKinds()
	}
	if err == nil {
		err = run(*check)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "types:", err)
		os.Exit(1)
	}
}

func run(check bool) error {
	for _, add := range []func(*runtime.Scheme) error{apiextensions.AddToScheme, apiregistration.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			return err
		}
	}
	kinds, err := readKinds()
	if err != nil {
		return err
	}
	table, err := newTable(kinds)
	if err != nil {
		return err
	}
	cases, err := newCases(kinds)
	if err != nil {
		return err
	}
	for _, file := range []struct {
		path string
		text []byte
	}{{typesFile, table}, {casesFile, cases}} {
		if check {
			stored, err := os.ReadFile(file.path)
			if err != nil {
				return err
			}
			if !bytes.Equal(stored, file.text) {
				return fmt.Errorf("%s is not what the Go types say; next: go run .", file.path)
			}
		} else if err := os.WriteFile(file.path, file.text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
