package logs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// poll is how often a followed log is looked at.
const poll = 100 * time.Millisecond

// Options choose what of a log is wanted.
type Options struct {
	// TailLines is how many of the last lines; less than 0 means all.
	TailLines int64
	// LimitBytes ends the answer after that many bytes; 0 means no limit.
	LimitBytes int64
	// Follow goes on with what is added, until ctx ends or Done is closed and all is read.
	Follow bool
	Done   <-chan struct{}
}

// Copy writes the log at path to w. Flush, which may be nil, is called whenever there is nothing more for now.
func Copy(ctx context.Context, w io.Writer, flush func(), path string, o Options) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // opened for reading
	if o.TailLines >= 0 {
		if err := seekTail(file, o.TailLines); err != nil {
			return err
		}
	}
	limited := &limitWriter{w, o.LimitBytes}
	for {
		ended := !o.Follow || closed(o.Done) // before the copy: what is added until then is in it
		if _, err := io.Copy(limited, file); err != nil {
			if errors.Is(err, errLimit) {
				return nil
			}
			return err
		}
		if flush != nil {
			flush()
		}
		if ended {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-o.Done:
		case <-time.After(poll):
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// seekTail goes to the beginning of the n-th line from the end.
func seekTail(file *os.File, n int64) error {
	const block = 64 << 10
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil || n == 0 {
		return err
	}
	buf := make([]byte, block)
	for at := end; at > 0; {
		size := min(block, at)
		at -= size
		if _, err := file.ReadAt(buf[:size], at); err != nil {
			return err
		}
		part := buf[:size]
		if at+size == end { // the newline that ends the last line begins no further one
			part = bytes.TrimSuffix(part, []byte("\n"))
		}
		for {
			i := bytes.LastIndexByte(part, '\n')
			if i < 0 {
				break
			}
			if n--; n == 0 {
				_, err := file.Seek(at+int64(i)+1, io.SeekStart)
				return err
			}
			part = part[:i]
		}
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}

var errLimit = errors.New("limit reached")

// limitWriter fails once the limit is reached; a limit of 0 is none.
type limitWriter struct {
	w    io.Writer
	left int64
}

func (l *limitWriter) Write(p []byte) (int, error) {
	if l.left == 0 {
		return l.w.Write(p)
	}
	if int64(len(p)) < l.left {
		n, err := l.w.Write(p)
		l.left -= int64(n)
		return n, err
	}
	n, err := l.w.Write(p[:l.left])
	if err == nil {
		err = errLimit
	}
	return n, err
}
