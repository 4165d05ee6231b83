// The scenario from grpc-go: prints `ok NAME` or `not ok NAME: why` for each step, and `done`.
package main

import (
	"fmt"
	"os"
	"strings"
)

type step struct {
	name string
	run  func() error
}

func main() {
	failed := 0
	for _, group := range [][]step{processSteps, fileSteps, errorSteps, portSteps} {
		for _, step := range group {
			if err := step.run(); err != nil {
				failed++
				fmt.Printf("not ok %s: %s\n", step.name, strings.ReplaceAll(err.Error(), "\n", " "))
				continue
			}
			fmt.Printf("ok %s\n", step.name)
		}
	}
	fmt.Println("done")
	if failed > 0 {
		os.Exit(1)
	}
}
