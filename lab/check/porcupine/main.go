// Porcupine as a process: one question a line on standard input, one answer a line on standard output.
//
// A question is a history over a few registers; each operation makes its steps on them at one moment. The registers'
// numbers, the values' (0: none) and the times are small and dense: the Rust side numbered them.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	read   = 0
	write  = 1
	remove = 2
)

// A step is its kind, its register and a value; for remove 0: unknown, 1: there was nothing, 2: there was something.
type step [3]uint32

type operation struct {
	Call   int64
	Return int64
	Steps  []step
}

type question struct {
	Registers    int
	Milliseconds int64
	Operations   []operation
}

// An answer of "Illegal" comes with the longest orders that were legal, as indices of operations.
type answer struct {
	Result  string
	Longest []int
}

func register(state string, at uint32) uint32 {
	return binary.LittleEndian.Uint32([]byte(state[4*at : 4*at+4]))
}

// apply makes one operation's steps; false: it cannot have been so. The state is a string, 4 bytes a register, since
// strings compare and hash as values.
func apply(state interface{}, input interface{}, output interface{}) (bool, interface{}) {
	before := state.(string)
	var after []byte
	for _, step := range input.(operation).Steps {
		current := register(before, step[1])
		if after != nil {
			current = binary.LittleEndian.Uint32(after[4*step[1]:])
		}
		next := current
		switch step[0] {
		case read:
			if current != step[2] {
				return false, before
			}
		case write:
			next = step[2]
		case remove:
			if step[2] == 1 && current != 0 || step[2] == 2 && current == 0 {
				return false, before
			}
			next = 0
		}
		if next != current {
			if after == nil {
				after = []byte(before)
			}
			binary.LittleEndian.PutUint32(after[4*step[1]:], next)
		}
	}
	if after == nil {
		return true, before
	}
	return true, string(after)
}

func judge(asked question) answer {
	model := porcupine.Model{
		Init: func() interface{} { return string(make([]byte, 4*asked.Registers)) },
		Step: apply,
	}
	history := make([]porcupine.Operation, len(asked.Operations))
	for at, operation := range asked.Operations {
		history[at] = porcupine.Operation{ClientId: at, Input: operation, Call: operation.Call, Return: operation.Return}
	}
	limit := time.Duration(asked.Milliseconds) * time.Millisecond
	result := porcupine.CheckOperationsTimeout(model, history, limit)
	if result != porcupine.Illegal {
		return answer{Result: string(result)}
	}
	_, info := porcupine.CheckOperationsVerbose(model, history, limit)
	var longest []int
	for _, partition := range info.PartialLinearizations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	return answer{Result: string(result), Longest: longest}
}

func main() {
	questions := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	answers := json.NewEncoder(os.Stdout)
	for questions.More() {
		var asked question
		if err := questions.Decode(&asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := answers.Encode(judge(asked)); err != nil {
			os.Exit(1)
		}
	}
}
