package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

// repeat calls `once` o.count times, or until o.ms have gone, o.inflight at a time.
func repeat(o options, conns []*grpc.ClientConn, once func(conn *grpc.ClientConn, number int) error) (answer, error) {
	var number atomic.Int64
	var lock sync.Mutex
	var all []time.Duration
	began := time.Now()
	deadline := began.Add(time.Duration(o.ms) * time.Millisecond)
	err := parallel(o.inflight, func(worker int) error {
		conn := conns[worker%len(conns)]
		var mine []time.Duration
		for {
			n := int(number.Add(1)) - 1
			if o.count > 0 && n >= o.count || o.count == 0 && time.Now().After(deadline) {
				break
			}
			at := time.Now()
			if err := once(conn, n); err != nil {
				return err
			}
			mine = append(mine, time.Since(at))
		}
		lock.Lock()
		all = append(all, mine...)
		lock.Unlock()
		return nil
	})
	return summarize(all, time.Since(began)), err
}

// runOnce starts a process, waits for its end and tells its id.
func runOnce(o options) (answer, error) {
	conns, err := dial(o)
	if err != nil {
		return answer{}, err
	}
	ctx := context.Background()
	id, err := start(ctx, conns[0], o.child)
	if err != nil {
		return answer{}, err
	}
	stream, err := openStream(ctx, conns[0], streamOutputs, outputsRequest(id, 0))
	if err != nil {
		return answer{}, err
	}
	_, err = drain(stream)
	return answer{Count: 1, ID: id}, err
}

func unary(o options) (answer, error) {
	conns, err := dial(o)
	if err != nil {
		return answer{}, err
	}
	ctx, request := context.Background(), stringField(1, o.id)
	return repeat(o, conns, func(conn *grpc.ClientConn, _ int) error {
		_, err := invoke(ctx, conn, getProcess, request)
		return err
	})
}

// startToExit runs a command again and again: from StartProcess to the OK of a follower.
func startToExit(o options) (answer, error) {
	conns, err := dial(o)
	if err != nil {
		return answer{}, err
	}
	ctx := context.Background()
	var lock sync.Mutex
	var starts []time.Duration
	result, err := repeat(o, conns, func(conn *grpc.ClientConn, _ int) error {
		at := time.Now()
		id, err := start(ctx, conn, o.child)
		if err != nil {
			return err
		}
		lock.Lock()
		starts = append(starts, time.Since(at))
		lock.Unlock()
		stream, err := openStream(ctx, conn, streamOutputs, outputsRequest(id, 0))
		if err != nil {
			return err
		}
		_, err = drain(stream)
		return err
	})
	result.StartMs = summarize(starts, 0).P50Ms
	return result, err
}

// flood times one process that writes o.bytes and exits; without -follow the client only waits.
func flood(o options) (answer, error) {
	conns, err := dial(o)
	if err != nil {
		return answer{}, err
	}
	ctx, began := context.Background(), time.Now()
	id, err := start(ctx, conns[0], o.child)
	if err != nil {
		return answer{}, err
	}
	var offset int64
	if !o.follow {
		offset = math.MaxInt64
	}
	stream, err := openStream(ctx, conns[0], streamOutputs, outputsRequest(id, offset))
	if err != nil {
		return answer{}, err
	}
	total, err := drain(stream)
	if err == nil && o.follow && total < o.bytes {
		err = fmt.Errorf("flood: %d bytes instead of %d", total, o.bytes)
	}
	return answer{Count: 1, Seconds: time.Since(began).Seconds(), Bytes: o.bytes}, err
}

// emit is a child: every few milliseconds the time, as eight bytes in one write.
func emit(o options) (answer, error) {
	ticker := time.NewTicker(time.Duration(o.everyMs) * time.Millisecond)
	for range o.count {
		<-ticker.C
		stamp := binary.LittleEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))
		if _, err := os.Stdout.Write(stamp); err != nil {
			return answer{}, err
		}
	}
	return answer{}, nil
}

// latency follows an emitter and compares its stamps with the time of arrival.
func latency(o options) (answer, error) {
	conns, err := dial(o)
	if err != nil {
		return answer{}, err
	}
	ctx, began := context.Background(), time.Now()
	id, err := start(ctx, conns[0], o.child)
	if err != nil {
		return answer{}, err
	}
	stream, err := openStream(ctx, conns[0], streamOutputs, outputsRequest(id, 0))
	if err != nil {
		return answer{}, err
	}
	var durations []time.Duration
	for {
		r := received{keep: true}
		if err := stream.RecvMsg(&r); errors.Is(err, io.EOF) {
			return summarize(durations, time.Since(began)), nil
		} else if err != nil {
			return answer{}, err
		}
		now := time.Now().UnixNano()
		for data := bytesField(r.bytes, 2); len(data) >= 8; data = data[8:] {
			durations = append(durations, time.Duration(now-int64(binary.LittleEndian.Uint64(data))))
		}
	}
}

// openFollowers starts the children and opens their followers. Children print one byte, then wait for a FIFO to be opened for
// writing: who has that byte is being followed.
func openFollowers(ctx context.Context, o options, conns []*grpc.ClientConn, each func(stream grpc.ClientStream) error) error {
	ids := make([]string, o.processes)
	err := parallel(min(16, o.processes), func(worker int) error {
		for i := worker; i < o.processes; i += 16 {
			id, err := start(ctx, conns[i%len(conns)], o.child)
			if err != nil {
				return err
			}
			ids[i] = id
		}
		return nil
	})
	if err != nil {
		return err
	}
	return parallel(o.processes*o.followers, func(worker int) error {
		stream, err := openStream(ctx, conns[worker%len(conns)], streamOutputs, outputsRequest(ids[worker%len(ids)], 0))
		if err != nil {
			return err
		}
		var first received
		if err := stream.RecvMsg(&first); err != nil {
			return err
		}
		return each(stream)
	})
}

// fan: o.processes children with o.followers each; once all are followed, the children write o.bytes and exit.
func fan(o options) (answer, error) {
	conns, err := dial(o)
	if err != nil {
		return answer{}, err
	}
	streams := o.processes * o.followers
	var ready, total atomic.Int64
	began := time.Now()
	var released time.Time
	var fifo *os.File // open until the last child has opened its end
	err = openFollowers(context.Background(), o, conns, func(stream grpc.ClientStream) error {
		if ready.Add(1) == int64(streams) {
			released = time.Now()
			if fifo, err = os.OpenFile(o.path, os.O_RDWR, 0); err != nil {
				return err
			}
		}
		n, err := drain(stream)
		total.Add(n)
		if err == nil && n < o.bytes {
			err = fmt.Errorf("fan: %d bytes instead of %d", n, o.bytes)
		}
		return err
	})
	if err != nil {
		return answer{}, err
	}
	seconds := time.Since(released).Seconds()
	fifo.Close()
	return answer{
		Count:    streams,
		Bytes:    o.bytes * int64(streams),
		Seconds:  seconds,
		ReadySec: released.Sub(began).Seconds(),
	}, nil
}

// hold keeps followers open until its standard input ends; it says so in a line of its own.
func hold(o options) (answer, error) {
	conns, err := dial(o)
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ready atomic.Int64
	streams := o.processes * o.followers
	err = openFollowers(ctx, o, conns, func(grpc.ClientStream) error {
		if ready.Add(1) == int64(streams) {
			waitForInput(answer{Count: streams})
			cancel()
		}
		<-ctx.Done()
		return nil
	})
	return answer{Count: streams}, err
}

func waitForInput(state answer) {
	json.NewEncoder(os.Stdout).Encode(state)
	bufio.NewReader(os.Stdin).ReadString('\n')
}

func pathOf(o options, number int) string {
	return strings.ReplaceAll(o.path, "%d", fmt.Sprint(number))
}

func read(o options) (answer, error) {
	conns, err := dial(o)
	if err != nil {
		return answer{}, err
	}
	var total atomic.Int64
	result, err := repeat(o, conns, func(conn *grpc.ClientConn, number int) error {
		stream, err := openStream(context.Background(), conn, readFile, stringField(1, pathOf(o, number)))
		if err != nil {
			return err
		}
		n, err := drain(stream)
		total.Add(n)
		if err == nil && n < o.bytes {
			err = fmt.Errorf("read: %d bytes instead of %d", n, o.bytes)
		}
		return err
	})
	result.Bytes = total.Load()
	return result, err
}

func write(o options) (answer, error) {
	conns, err := dial(o)
	if err != nil {
		return answer{}, err
	}
	payload := make([]byte, o.chunk)
	result, err := repeat(o, conns, func(conn *grpc.ClientConn, number int) error {
		stream, err := conn.NewStream(context.Background(), &grpc.StreamDesc{ClientStreams: true}, writeFile)
		if err != nil {
			return err
		}
		head := stringField(1, pathOf(o, number))
		for left := o.bytes; left > 0 || head != nil; {
			size := min(left, int64(o.chunk))
			message := protowire.AppendTag(append(make([]byte, 0, len(head)+int(size)+8), head...), 2, protowire.BytesType)
			message = protowire.AppendBytes(message, payload[:size])
			head, left = nil, left-size
			if err := stream.SendMsg(message); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		var r received
		return stream.RecvMsg(&r)
	})
	result.Bytes = o.bytes * int64(result.Count)
	return result, err
}

// stall takes one message of a download and then nothing, until its standard input ends.
func stall(o options) (answer, error) {
	conns, err := dial(o, grpc.WithInitialWindowSize(64*1024), grpc.WithInitialConnWindowSize(64*1024))
	if err != nil {
		return answer{}, err
	}
	stream, err := openStream(context.Background(), conns[0], readFile, stringField(1, o.path))
	if err != nil {
		return answer{}, err
	}
	var r received
	if err := stream.RecvMsg(&r); err != nil {
		return answer{}, err
	}
	state := answer{Count: 1, Bytes: int64(r.length)}
	waitForInput(state)
	return state, nil
}
