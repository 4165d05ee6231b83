// Processes: start, follow, resume, kill, and what the status says.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	pb "interop/ateenvv1alpha"
)

var processSteps = []step{
	{"start_and_follow", func() error {
		id, err := open.start("sh", "-c", "echo out; echo err >&2; exit 3")
		if err != nil {
			return err
		}
		stdout, stderr, err := open.follow(id, 0)
		if err != nil {
			return err
		}
		process, err := open.get(id)
		return errors.Join(
			err,
			want("stdout", string(stdout), "out\n"),
			want("stderr", string(stderr), "err\n"),
			want("status", process.GetStatus(), pb.ProcessStatus_PROCESS_STATUS_FAILED),
			want("exit code", process.GetExitCode(), 3),
			want("has times", process.GetStartedAt() != nil && process.GetFinishedAt() != nil, true),
		)
	}},
	{"resume_by_offset", func() error {
		const size = 4 * mib
		id, err := open.start("sh", "-c", fmt.Sprintf("seq 1 10000000 | head -c %d", size))
		if err != nil {
			return err
		}
		var got []byte
		for cuts := 0; len(got) < size; cuts++ {
			request := &pb.StreamProcessOutputsRequest{ProcessId: id, StdoutOffset: int64(len(got)), Follow: true}
			err := open.output(request, func(chunk *pb.OutputChunk) bool {
				got = append(got, chunk.GetData()...)
				return cuts >= 10
			})
			if err != nil {
				return err
			}
		}
		var wanted strings.Builder
		for line := 1; wanted.Len() < size; line++ {
			fmt.Fprintln(&wanted, line)
		}
		return want("same bytes", bytes.Equal(got, []byte(wanted.String()[:size])), true)
	}},
	{"wait_with_int64_max", func() error {
		id, err := open.start("sh", "-c", "echo x; exit 4")
		if err != nil {
			return err
		}
		chunks := 0
		request := &pb.StreamProcessOutputsRequest{ProcessId: id, StdoutOffset: end, StderrOffset: end, Follow: true}
		err = open.output(request, func(*pb.OutputChunk) bool { chunks++; return true })
		if err != nil {
			return err
		}
		process, err := open.get(id)
		return errors.Join(err, want("chunks", chunks, 0), want("exit code", process.GetExitCode(), 4))
	}},
	{"kill_tree", func() error {
		id, err := open.start("sh", "-c", "setsid sleep 1000 & sleep 1000 & echo up; wait")
		if err != nil {
			return err
		}
		request := &pb.StreamProcessOutputsRequest{ProcessId: id, Follow: true}
		if err := open.output(request, func(*pb.OutputChunk) bool { return false }); err != nil {
			return err
		}
		running, err := open.get(id)
		if err != nil {
			return err
		}
		code, err := open.kill(id)
		if err != nil {
			return err
		}
		process, err := open.get(id)
		return errors.Join(
			err,
			want("status before", running.GetStatus(), pb.ProcessStatus_PROCESS_STATUS_RUNNING),
			want("exit code", code, 137),
			want("status", process.GetStatus(), pb.ProcessStatus_PROCESS_STATUS_TERMINATED),
		)
	}},
}
