package runtime

import (
	"bytes"
	"fmt"
	"io"
)

// maxReply bounds what one command may answer. `show servers state` of 100,000 servers has 8 MiB.
const maxReply = 256 << 20

// prompt is what every answer ends with.
const prompt = "\n> "

// replies divides what an interactive command line says into answers.
type replies struct {
	from io.Reader
	// buffer[begin:] has been read and not been handed out.
	buffer []byte
	begin  int
}

// next returns the next answer, without its prompt and without surrounding newlines.
func (r *replies) next() (string, error) {
	for seen := r.begin; ; {
		if n := bytes.Index(r.buffer[seen:], []byte(prompt)); n >= 0 {
			answer := string(bytes.Trim(r.buffer[r.begin:seen+n], "\n"))
			r.begin = seen + n + len(prompt)
			return answer, nil
		}
		seen = max(r.begin, len(r.buffer)-len(prompt)+1)
		if len(r.buffer)-r.begin > maxReply {
			return "", fmt.Errorf("answer longer than %d bytes", maxReply)
		}
		seen -= r.makeRoom()
		n, err := r.from.Read(r.buffer[len(r.buffer):cap(r.buffer)])
		r.buffer = r.buffer[:len(r.buffer)+n]
		if err != nil && n == 0 {
			return "", err
		}
	}
}

// makeRoom sees to it that something can be read, and returns by how much the contents of the buffer moved.
func (r *replies) makeRoom() (moved int) {
	const least = 16 << 10
	if cap(r.buffer)-len(r.buffer) >= least {
		return 0
	}
	rest := r.buffer[r.begin:]
	room := r.buffer[:0]
	if cap(room) < 2*len(rest)+least {
		room = make([]byte, 0, 2*len(rest)+2*least)
	}
	moved = r.begin
	r.buffer, r.begin = append(room, rest...), 0
	return moved
}
