// Load generator of `deno task bench`: one operation per run, one line of JSON as the answer.
// Works on raw protobuf bytes, so that it spends next to nothing per message.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"time"
)

type options struct {
	addr      string
	id        string
	path      string
	inflight  int
	count     int
	ms        int
	conns     int
	bytes     int64
	chunk     int
	processes int
	followers int
	everyMs   int
	follow    bool
	child     []string
}

// answer is what an operation reports; figures pick what they need.
type answer struct {
	Count    int     `json:"count"`
	Seconds  float64 `json:"seconds"`
	Bytes    int64   `json:"bytes"`
	P50Ms    float64 `json:"p50Ms"`
	P99Ms    float64 `json:"p99Ms"`
	StartMs  float64 `json:"startMs,omitempty"`
	ReadySec float64 `json:"readySeconds,omitempty"`
	ID       string  `json:"id,omitempty"`
}

var operations = map[string]func(options) (answer, error){
	"id":      runOnce,
	"unary":   unary,
	"start":   startToExit,
	"flood":   flood,
	"latency": latency,
	"fan":     fan,
	"read":    read,
	"write":   write,
	"stall":   stall,
	"hold":    hold,
	"emit":    emit,
}

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("an operation is needed"))
	}
	operation, known := operations[os.Args[1]]
	if !known {
		fail(fmt.Errorf("unknown operation %q", os.Args[1]))
	}
	var o options
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&o.addr, "addr", "", "address of the server")
	flags.StringVar(&o.id, "id", "", "process id")
	flags.StringVar(&o.path, "path", "", "file; %d in it is the number of the call")
	flags.IntVar(&o.inflight, "inflight", 1, "calls at a time")
	flags.IntVar(&o.count, "count", 0, "calls (0: until -ms)")
	flags.IntVar(&o.ms, "ms", 1000, "duration where -count is 0")
	flags.IntVar(&o.conns, "conns", 1, "connections")
	flags.Int64Var(&o.bytes, "bytes", 0, "bytes per process or file")
	flags.IntVar(&o.chunk, "chunk", 64*1024, "bytes per uploaded message")
	flags.IntVar(&o.processes, "processes", 1, "processes of fan and hold")
	flags.IntVar(&o.followers, "followers", 1, "followers of each process")
	flags.IntVar(&o.everyMs, "every", 5, "milliseconds between two writes of emit")
	flags.BoolVar(&o.follow, "follow", false, "flood: receive the output")
	flags.Parse(os.Args[2:])
	o.child = flags.Args()
	result, err := operation(o)
	if err != nil {
		fail(err)
	}
	if os.Args[1] != "emit" {
		json.NewEncoder(os.Stdout).Encode(result)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "loadgen:", err)
	os.Exit(1)
}

// summarize turns durations into an answer.
func summarize(durations []time.Duration, elapsed time.Duration) answer {
	sort.Slice(durations, func(i, j int) bool { return durations[i] < durations[j] })
	return answer{
		Count:   len(durations),
		Seconds: elapsed.Seconds(),
		P50Ms:   quantile(durations, 0.5),
		P99Ms:   quantile(durations, 0.99),
	}
}

func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := int(q * float64(len(sorted)))
	if at >= len(sorted) {
		at = len(sorted) - 1
	}
	return float64(sorted[at].Nanoseconds()) / 1e6
}
