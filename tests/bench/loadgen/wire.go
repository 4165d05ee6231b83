package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	startProcess  = "/ateenv.v1alpha.ProcessService/StartProcess"
	getProcess    = "/ateenv.v1alpha.ProcessService/GetProcess"
	streamOutputs = "/ateenv.v1alpha.ProcessService/StreamProcessOutputs"
	readFile      = "/ateenv.v1alpha.FileSystemService/ReadFile"
	writeFile     = "/ateenv.v1alpha.FileSystemService/WriteFile"
)

// received is a message as it came: its length, and its first bytes where they are wanted.
type received struct {
	length int
	keep   bool
	bytes  []byte
}

// rawCodec sends bytes as they are, and counts what comes without copying it.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r := v.(*received)
	r.length = data.Len()
	if r.keep {
		r.bytes = data.Materialize()
	}
	return nil
}

var _ encoding.CodecV2 = rawCodec{}

// dial opens o.conns connections that are ready to be used.
func dial(o options, extra ...grpc.DialOption) ([]*grpc.ClientConn, error) {
	conns := make([]*grpc.ClientConn, max(1, o.conns))
	for i := range conns {
		conn, err := grpc.NewClient("passthrough:///"+o.addr, append([]grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(math.MaxInt32)),
			grpc.WithReadBufferSize(256 * 1024),
		}, extra...)...)
		if err != nil {
			return nil, err
		}
		conn.Connect()
		ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
		for state := conn.GetState(); state.String() != "READY"; state = conn.GetState() {
			if !conn.WaitForStateChange(ctx, state) {
				stop()
				return nil, fmt.Errorf("no connection to %s", o.addr)
			}
		}
		stop()
		conns[i] = conn
	}
	return conns, nil
}

func stringField(number protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func startRequest(command []string) []byte {
	var b []byte
	for _, word := range command {
		b = append(b, stringField(1, word)...)
	}
	return b
}

func outputsRequest(id string, offset int64) []byte {
	b := stringField(1, id)
	for _, number := range []protowire.Number{2, 3} {
		if offset != 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(offset))
		}
	}
	return protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), 1)
}

// bytesField returns the bytes of a field with that number, nil where there is none.
func bytesField(message []byte, number protowire.Number) []byte {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return nil
		}
		message = message[size:]
		if n == number && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			return value
		}
		size = protowire.ConsumeFieldValue(n, kind, message)
		if size < 0 {
			return nil
		}
		message = message[size:]
	}
	return nil
}

func invoke(ctx context.Context, conn *grpc.ClientConn, method string, request []byte) ([]byte, error) {
	answer := received{keep: true}
	err := conn.Invoke(ctx, method, request, &answer)
	return answer.bytes, err
}

func start(ctx context.Context, conn *grpc.ClientConn, command []string) (string, error) {
	message, err := invoke(ctx, conn, startProcess, startRequest(command))
	return string(bytesField(message, 1)), err
}

// openStream begins a server-streaming call.
func openStream(ctx context.Context, conn *grpc.ClientConn, method string, request []byte) (grpc.ClientStream, error) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream, stream.CloseSend()
}

// drain receives to the end and returns the size of all messages.
func drain(stream grpc.ClientStream) (int64, error) {
	var total int64
	for {
		var r received
		if err := stream.RecvMsg(&r); errors.Is(err, io.EOF) {
			return total, nil
		} else if err != nil {
			return total, err
		}
		total += int64(r.length)
	}
}

// parallel runs `work` in n goroutines and returns the first error.
func parallel(n int, work func(worker int) error) error {
	var wait sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if err := work(i); err != nil {
				errs <- err
			}
		}()
	}
	wait.Wait()
	close(errs)
	return <-errs
}
