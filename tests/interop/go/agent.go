// One connection to one agent: the six calls with a bound on each.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "interop/ateenvv1alpha"
)

const (
	mib = 1 << 20
	// A call that takes longer hangs.
	hangs = 60 * time.Second
	// How clients wait for the end of a process without its output.
	end = math.MaxInt64
)

type agent struct {
	connection *grpc.ClientConn
	processes  pb.ProcessServiceClient
	files      pb.FileSystemServiceClient
	token      string
}

func connect(target, token string) *agent {
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	return &agent{
		connection, pb.NewProcessServiceClient(connection), pb.NewFileSystemServiceClient(connection), token,
	}
}

var (
	open    = connect(os.Getenv("ATEENV_TARGET"), "")
	limited = connect(os.Getenv("ATEENV_LIMITED_TARGET"), os.Getenv("ATEENV_TOKEN"))
)

func (a *agent) context(timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	if a.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.token)
	}
	return ctx, cancel
}

func (a *agent) start(command ...string) (string, error) {
	ctx, cancel := a.context(hangs)
	defer cancel()
	answer, err := a.processes.StartProcess(ctx, &pb.StartProcessRequest{Command: command})
	return answer.GetProcessId(), err
}

func (a *agent) get(id string) (*pb.Process, error) {
	ctx, cancel := a.context(hangs)
	defer cancel()
	return a.processes.GetProcess(ctx, &pb.GetProcessRequest{ProcessId: id})
}

func (a *agent) kill(id string) (int32, error) {
	ctx, cancel := a.context(hangs)
	defer cancel()
	answer, err := a.processes.KillProcess(ctx, &pb.KillProcessRequest{ProcessId: id})
	return answer.GetExitCode(), err
}

// output reads to the end, or until take says that it was enough.
func (a *agent) output(request *pb.StreamProcessOutputsRequest, take func(*pb.OutputChunk) bool) error {
	ctx, cancel := a.context(hangs)
	defer cancel()
	stream, err := a.processes.StreamProcessOutputs(ctx, request)
	if err != nil {
		return err
	}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !take(chunk) {
			return nil
		}
	}
}

// follow gives both streams from an offset of stdout to the end of the process.
func (a *agent) follow(id string, offset int64) (stdout, stderr []byte, err error) {
	request := &pb.StreamProcessOutputsRequest{ProcessId: id, StdoutOffset: offset, Follow: true}
	err = a.output(request, func(chunk *pb.OutputChunk) bool {
		if chunk.GetSource() == pb.OutputSource_OUTPUT_SOURCE_STDOUT {
			stdout = append(stdout, chunk.GetData()...)
		} else {
			stderr = append(stderr, chunk.GetData()...)
		}
		return true
	})
	return stdout, stderr, err
}

func (a *agent) read(path string, take func([]byte)) error {
	ctx, cancel := a.context(hangs)
	defer cancel()
	stream, err := a.files.ReadFile(ctx, &pb.ReadFileRequest{Path: path})
	if err != nil {
		return err
	}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		take(chunk.GetData())
	}
}

func (a *agent) write(messages ...*pb.WriteFileRequest) (int64, error) {
	ctx, cancel := a.context(hangs)
	defer cancel()
	stream, err := a.files.WriteFile(ctx)
	if err != nil {
		return 0, err
	}
	for _, message := range messages {
		if err := stream.Send(message); err != nil {
			break // The answer says why.
		}
	}
	answer, err := stream.CloseAndRecv()
	return answer.GetBytesWritten(), err
}

// wantCode is nil if err has that status, with all the words in its message.
func wantCode(err error, code codes.Code, words ...string) error {
	if status.Code(err) != code {
		return fmt.Errorf("want %v, got %v", code, err)
	}
	for _, word := range words {
		if !strings.Contains(status.Convert(err).Message(), word) {
			return fmt.Errorf("no %q in %v", word, err)
		}
	}
	return nil
}

func want[T comparable](what string, actual, wanted T) error {
	if actual != wanted {
		return fmt.Errorf("%s: want %v, got %v", what, wanted, actual)
	}
	return nil
}
