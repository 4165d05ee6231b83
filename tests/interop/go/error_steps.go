// Every code that the agent answers with.
package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "interop/ateenvv1alpha"
)

func discard([]byte) {}

var errorSteps = []step{
	{"invalid_argument", func() error {
		_, noCommand := open.start()
		_, noID := open.get("")
		_, noData := open.write()
		_, twoPaths := open.write(&pb.WriteFileRequest{Path: "go/a"}, &pb.WriteFileRequest{Path: "go/b"})
		return errors.Join(
			wantCode(noCommand, codes.InvalidArgument, "command cannot be empty"),
			wantCode(noID, codes.InvalidArgument, "process_id cannot be empty"),
			wantCode(open.read("", discard), codes.InvalidArgument, "file path cannot be empty"),
			wantCode(noData, codes.InvalidArgument, "no file data received"),
			wantCode(twoPaths, codes.InvalidArgument),
		)
	}},
	{"negative_offset", func() error {
		id, err := open.start("true")
		if err != nil {
			return err
		}
		_, _, err = open.follow(id, -1)
		return wantCode(err, codes.InvalidArgument, "offsets cannot be negative")
	}},
	{"not_found", func() error {
		_, err := open.get("nobody")
		return errors.Join(
			wantCode(err, codes.NotFound, `process "nobody" not found`),
			wantCode(open.read("go/absent", discard), codes.NotFound, `file "go/absent" not found`),
		)
	}},
	{"permission_denied", func() error {
		_, err := open.write(&pb.WriteFileRequest{Path: "../escaped", Chunk: []byte("x")})
		return errors.Join(
			wantCode(err, codes.PermissionDenied, "is outside sandbox root directory"),
			wantCode(open.read("/etc/passwd", discard), codes.PermissionDenied, `path "/etc/passwd"`),
		)
	}},
	{"failed_precondition", func() error {
		return wantCode(open.read(".", discard), codes.FailedPrecondition)
	}},
	{"resource_exhausted", func() error {
		var ids []string
		for range 2 {
			id, err := limited.start("sleep", "1000")
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		_, tooMany := limited.start("true")
		for _, id := range ids {
			if _, err := limited.kill(id); err != nil {
				return err
			}
		}
		_, tooLarge := open.write(&pb.WriteFileRequest{Path: "go/huge", Chunk: make([]byte, 17*mib)})
		return errors.Join(
			wantCode(tooMany, codes.ResourceExhausted, "maximum concurrent processes limit (2) reached"),
			wantCode(tooLarge, codes.ResourceExhausted),
		)
	}},
	{"out_of_range", func() error {
		id, err := limited.start("sh", "-c", "head -c 1000000 /dev/zero")
		if err != nil {
			return err
		}
		if _, _, err := limited.follow(id, end); err != nil {
			return err
		}
		ctx, cancel := limited.context(hangs)
		defer cancel()
		stream, err := limited.processes.StreamProcessOutputs(ctx, &pb.StreamProcessOutputsRequest{ProcessId: id})
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		first := stream.Trailer().Get("ateenv-first-stdout-offset")
		if len(first) != 1 {
			return errors.New("no trailer that names the first offset")
		}
		if err := wantCode(err, codes.OutOfRange, first[0]); err != nil {
			return err
		}
		offset, err := strconv.ParseInt(first[0], 10, 64)
		if err != nil {
			return err
		}
		stdout, _, err := limited.follow(id, offset)
		return errors.Join(err, want("bytes kept", int64(len(stdout)), 1000000-offset))
	}},
	{"unauthenticated", func() error {
		for _, token := range []string{"", "wrong", limited.token + "x"} {
			other := connect(limited.connection.Target(), token)
			_, get := other.get("nobody")
			_, write := other.write(&pb.WriteFileRequest{Path: "go-x", Chunk: []byte("x")})
			err := errors.Join(
				wantCode(get, codes.Unauthenticated),
				wantCode(write, codes.Unauthenticated),
				wantCode(other.read("x", discard), codes.Unauthenticated),
				other.connection.Close(),
			)
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"unimplemented", func() error {
		ctx, cancel := open.context(hangs)
		defer cancel()
		err := open.connection.Invoke(ctx, "/ateenv.v1alpha.ProcessService/Nope", &emptypb.Empty{}, &emptypb.Empty{})
		return wantCode(err, codes.Unimplemented)
	}},
	{"unavailable", func() error {
		nobody := connect("127.0.0.1:1", "")
		_, err := nobody.get("x")
		return errors.Join(wantCode(err, codes.Unavailable), nobody.connection.Close())
	}},
	{"deadline", func() error {
		id, err := open.start("sleep", "1000")
		if err != nil {
			return err
		}
		ctx, cancel := open.context(300 * time.Millisecond)
		defer cancel()
		stream, err := open.processes.StreamProcessOutputs(ctx, &pb.StreamProcessOutputsRequest{ProcessId: id, Follow: true})
		if err != nil {
			return err
		}
		_, expired := stream.Recv()
		code, err := open.kill(id)
		return errors.Join(wantCode(expired, codes.DeadlineExceeded), err, want("exit code", code, 137))
	}},
	{"cancel", func() error {
		id, err := open.start("sh", "-c", "while :; do echo x; done")
		if err != nil {
			return err
		}
		for range 20 {
			ctx, cancel := context.WithTimeout(context.Background(), hangs)
			stream, err := open.processes.StreamProcessOutputs(ctx, &pb.StreamProcessOutputsRequest{ProcessId: id, Follow: true})
			if err == nil {
				_, err = stream.Recv()
			}
			cancel()
			for err == nil {
				_, err = stream.Recv()
			}
			if err := wantCode(err, codes.Canceled); err != nil {
				return err
			}
		}
		process, err := open.get(id)
		if err != nil {
			return err
		}
		code, err := open.kill(id)
		return errors.Join(
			err,
			want("status", process.GetStatus(), pb.ProcessStatus_PROCESS_STATUS_RUNNING),
			want("exit code", code, 137),
		)
	}},
	{"large_metadata", func() error {
		ctx, cancel := open.context(hangs)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx,
			"x-env-id", "e", "x-large", strings.Repeat("v", 6000), "x-bytes-bin", "\x00\x01\xff")
		_, err := open.processes.GetProcess(ctx, &pb.GetProcessRequest{ProcessId: "nobody"})
		return wantCode(err, codes.NotFound)
	}},
}
