// Command parity answers expressions, policies and CRDs with the code of a Kubernetes API server.
//
// It reads one JSON object per line and writes one JSON object per line. A line has one of these fields:
//   - functions: an environment such as "1.34"; the answer lists the functions that it declares
//   - expression: an expression, with environment and variables
//   - case: policies, bindings, parameters, namespaces and a request
//   - crdCase: a CRD, and objects that are created or updated
//   - measure: an expression or policies; the answer is the time of an evaluation or of the checks
//
// The order of Go's maps is random, so everything is evaluated several times. The answer has each distinct result once.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"k8s.io/klog/v2"
)

const (
	// repeats is the number of evaluations. A loop over a map of two entries then misses one order once in eight million times.
	repeats = 24
	// patience bounds the time for repeats, since expensive expressions take long. On a busy machine, all evaluations of
	// a cheap expression can take 100 ms.
	patience = 500 * time.Millisecond
	maxLine  = 64 << 20
)

type question struct {
	Functions   string
	Expression  *string
	Environment string
	Variables   json.RawMessage
	Case        *policyCase
	CRDCase     *crdCase
	Measure     *measurement
}

func answer(q *question) any {
	switch {
	case q.Functions != "":
		return functions(q.Functions)
	case q.Expression != nil:
		return expression(*q.Expression, q.Environment, q.Variables)
	case q.Case != nil:
		return q.Case.answer()
	case q.CRDCase != nil:
		return q.CRDCase.answer()
	case q.Measure != nil:
		return q.Measure.answer()
	}
	return map[string]string{"error": "the line has no question"}
}

// distinct evaluates several times and returns each result once. A panic is a result.
func distinct(evaluate func() map[string]any) []map[string]any {
	var results []map[string]any
	seen := map[string]bool{}
	start := time.Now()
	for i := 0; i < repeats && (i < 2 || time.Since(start) < patience); i++ {
		result := recovered(evaluate)
		text, err := json.Marshal(result)
		if err != nil {
			log.Fatal(err)
		}
		if !seen[string(text)] {
			seen[string(text)] = true
			results = append(results, result)
		}
	}
	return results
}

func recovered(evaluate func() map[string]any) (result map[string]any) {
	defer func() {
		if reason := recover(); reason != nil {
			result = map[string]any{"phase": "panic", "value": fmt.Sprint(reason)}
		}
	}()
	return evaluate()
}

// decode reads JSON with numbers as the API server reads them: whole numbers are int64, all others are float64.
func decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

func numbers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, item := range value {
			value[key] = numbers(item)
		}
	case []any:
		for index, item := range value {
			value[index] = numbers(item)
		}
	case json.Number:
		if whole, err := value.Int64(); err == nil {
			return whole
		}
		float, _ := value.Float64()
		return float
	}
	return value
}

func main() {
	log.SetFlags(0)
	// The API server's code logs errors that are answers here.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, maxLine)
	output := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(output)
	encoder.SetEscapeHTML(false)
	for input.Scan() {
		var q question
		if err := decode(input.Bytes(), &q); err != nil {
			log.Fatalf("parity: cannot read a line: %v", err)
		}
		if err := encoder.Encode(answer(&q)); err != nil {
			log.Fatalf("parity: cannot write an answer: %v", err)
		}
		if err := output.Flush(); err != nil {
			log.Fatalf("parity: cannot write an answer: %v", err)
		}
	}
	if err := input.Err(); err != nil {
		log.Fatalf("parity: cannot read: %v", err)
	}
}
