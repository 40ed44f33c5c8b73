package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// The oldest minor that is recorded, and the one whose types are.
	oldestMinor, typesMinor = 30, 35

	kindsHead = `# Kinds of Kubernetes 1.30 to 1.37: group, version, kind, resource, scope, first and last minor that serves it.
# Upstream recorded them from an API server with all its APIs enabled (api/discovery in k8s.io/kubernetes).
# ` + "`go run . -record-kinds`" + ` in crates/evaluator/policy/tools/types writes this file.
`
)

// The recorded patch release of each minor.
var patches = []int{14, 14, 13, 13, 4, 4, 3, 2}

// recordKinds writes the table of kinds from upstream's records of the discovery of its API servers.
func recordKinds() error {
	minors := map[string][]int{}
	for index, patch := range patches {
		minor := oldestMinor + index
		rows, err := discovered(fmt.Sprintf("v1.%d.%d", minor, patch))
		if err != nil {
			return err
		}
		for _, row := range rows {
			minors[row] = append(minors[row], minor)
		}
	}
	var lines []string
	for row, served := range minors {
		first, last := served[0], served[len(served)-1]
		if len(served) != last-first+1 {
			return fmt.Errorf("%s is served by the minors %v, which have a gap", row, served)
		}
		lines = append(lines, fmt.Sprintf("%s\t%d\t%d\n", row, first, last))
	}
	slices.Sort(lines)
	return os.WriteFile(kindsFile, []byte(kindsHead+strings.Join(lines, "")), 0o644)
}

// discovered returns the kinds of one version of Kubernetes. Its sources are 300 MB, so they do not stay in the module cache.
func discovered(version string) ([]string, error) {
	cache, err := os.MkdirTemp("", "kinds")
	if err != nil {
		return nil, err
	}
	run := func(arguments ...string) ([]byte, error) {
		command := exec.Command("go", arguments...)
		command.Env = append(os.Environ(), "GOMODCACHE="+cache)
		command.Stderr = os.Stderr
		return command.Output()
	}
	defer func() {
		_, _ = run("clean", "-modcache")
		_ = os.RemoveAll(cache)
	}()
	output, err := run("mod", "download", "-json", "k8s.io/kubernetes@"+version)
	if err != nil {
		return nil, fmt.Errorf("download of Kubernetes %s: %w: %s", version, err, output)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(module.Dir, "api", "discovery", "api*__v*.json"))
	if err != nil || len(files) < 20 {
		return nil, fmt.Errorf("Kubernetes %s has %d records of its discovery: %v", version, len(files), err)
	}
	var rows []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var list struct {
			GroupVersion string
			Resources    []struct {
				Name, Kind string
				Namespaced bool
			}
		}
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.Resources {
			// Manifests do not name subresources.
			if strings.Contains(resource.Name, "/") {
				continue
			}
			scope := "Cluster"
			if resource.Namespaced {
				scope = "Namespaced"
			}
			rows = append(rows, strings.Join([]string{group.Group, group.Version, resource.Kind, resource.Name, scope}, "\t"))
		}
	}
	return rows, nil
}

// readKinds returns the built-in kinds of the minor whose types are recorded, in the order of the file.
func readKinds() ([]schema.GroupVersionKind, error) {
	text, err := os.ReadFile(kindsFile)
	if err != nil {
		return nil, err
	}
	var kinds []schema.GroupVersionKind
	for line := range strings.Lines(string(text)) {
		columns := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(columns) != 7 {
			continue
		}
		var first, last int
		if _, err := fmt.Sscan(columns[5]+" "+columns[6], &first, &last); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", kindsFile, line, err)
		}
		if first <= typesMinor && typesMinor <= last {
			kinds = append(kinds, schema.GroupVersionKind{Group: columns[0], Version: columns[1], Kind: columns[2]})
		}
	}
	return kinds, nil
}
