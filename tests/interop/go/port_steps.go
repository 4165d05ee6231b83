// The port: health, version, compression, many calls on one connection, connections that come and go.
package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	pb "interop/ateenvv1alpha"
)

func health(a *agent, service string) (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
	ctx, cancel := a.context(hangs)
	defer cancel()
	request := &grpc_health_v1.HealthCheckRequest{Service: service}
	answer, err := grpc_health_v1.NewHealthClient(a.connection).Check(ctx, request)
	return answer.GetStatus(), err
}

var portSteps = []step{
	{"health", func() error {
		serving := grpc_health_v1.HealthCheckResponse_SERVING
		for _, service := range []string{"", "ateenv.v1alpha.ProcessService", "ateenv.v1alpha.FileSystemService"} {
			status, err := health(open, service)
			if err := errors.Join(err, want(service, status, serving)); err != nil {
				return err
			}
		}
		stranger := connect(limited.connection.Target(), "")
		status, err := health(stranger, "")
		_, unknown := health(open, "nope")
		return errors.Join(
			err, want("without a token", status, serving), wantCode(unknown, codes.NotFound), stranger.connection.Close(),
		)
	}},
	{"health_watch", func() error {
		ctx, cancel := open.context(hangs)
		defer cancel()
		stream, err := grpc_health_v1.NewHealthClient(open.connection).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			return err
		}
		answer, err := stream.Recv()
		return errors.Join(err, want("status", answer.GetStatus(), grpc_health_v1.HealthCheckResponse_SERVING))
	}},
	{"version_metadata", func() error {
		ctx, cancel := open.context(hangs)
		defer cancel()
		var header metadata.MD
		_, err := open.processes.StartProcess(ctx, &pb.StartProcessRequest{Command: []string{"true"}}, grpc.Header(&header))
		return errors.Join(err, want("versions", len(header.Get("ateenv-version")), 1))
	}},
	{"compression", func() error {
		ctx, cancel := open.context(hangs)
		defer cancel()
		text := strings.Repeat("x", 5000)
		request := &pb.StartProcessRequest{Command: []string{"printf", "%s", text}}
		answer, err := open.processes.StartProcess(ctx, request, grpc.UseCompressor(gzip.Name))
		if err != nil {
			return err
		}
		stdout, _, err := open.follow(answer.GetProcessId(), 0)
		return errors.Join(err, want("output", string(stdout), text))
	}},
	{"many_calls_then_close", func() error {
		for round := range 10 {
			visitor := connect(open.connection.Target(), "")
			var wait sync.WaitGroup
			failures := make(chan error, 200)
			for range 200 {
				wait.Go(func() {
					_, err := visitor.get("nobody")
					if err := wantCode(err, codes.NotFound); err != nil {
						failures <- err
					}
				})
			}
			wait.Wait()
			close(failures)
			for err := range failures {
				return fmt.Errorf("round %d: %w", round, err)
			}
			if err := visitor.connection.Close(); err != nil {
				return err
			}
		}
		_, err := open.get("nobody")
		return wantCode(err, codes.NotFound)
	}},
}
