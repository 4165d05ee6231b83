// Files: 64 MiB up and down, and an upload that does not end.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "interop/ateenvv1alpha"
)

var fileSteps = []step{
	{"upload_64_mib_and_download", func() error {
		ctx, cancel := open.context(hangs)
		defer cancel()
		stream, err := open.files.WriteFile(ctx)
		if err != nil {
			return err
		}
		sent := sha256.New()
		if err := stream.Send(&pb.WriteFileRequest{Path: "go/large", Mode: 0o640}); err != nil {
			return err
		}
		for number := range uint64(64) {
			chunk := bytes.Repeat([]byte{byte(number)}, mib)
			binary.BigEndian.PutUint64(chunk, number)
			sent.Write(chunk)
			if err := stream.Send(&pb.WriteFileRequest{Chunk: chunk}); err != nil {
				break
			}
		}
		answer, err := stream.CloseAndRecv()
		if err != nil {
			return err
		}
		read := sha256.New()
		err = open.read("go/large", func(data []byte) { read.Write(data) })
		return errors.Join(
			err,
			want("bytes written", answer.GetBytesWritten(), 64*mib),
			want("same hash", bytes.Equal(sent.Sum(nil), read.Sum(nil)), true),
		)
	}},
	{"cancelled_upload_leaves_the_old_file", func() error {
		if _, err := open.write(&pb.WriteFileRequest{Path: "go/kept", Chunk: []byte("old")}); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), hangs)
		defer cancel()
		stream, err := open.files.WriteFile(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.WriteFileRequest{Path: "go/kept", Chunk: make([]byte, mib)}); err != nil {
			return err
		}
		cancel()
		_, err = stream.CloseAndRecv()
		if status.Code(err) != codes.Canceled {
			return err
		}
		var content []byte
		err = open.read("go/kept", func(data []byte) { content = append(content, data...) })
		return errors.Join(err, want("content", string(content), "old"))
	}},
}
