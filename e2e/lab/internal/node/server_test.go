package node

import (
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

func TestLogsThroughTheAPIServer(t *testing.T) {
	c := theCluster(t)
	c.create(t, "talk", `
containers: [{name: main, image: sh, command: [sh, -c, 'echo one; echo two >&2; echo three > /dev/stdout; until test -e /data/go; do sleep 0.02; done; echo four; sleep 1000'], volumeMounts: [{name: d, mountPath: /data}]}]
volumes: [{name: d, hostPath: {path: /tmp/talk}}]
`)
	c.until(t, "talk", isReady)
	read := func(o corev1.PodLogOptions) (string, error) {
		stream, err := c.client.CoreV1().Pods("default").GetLogs("talk", &o).Stream(t.Context())
		if err != nil {
			return "", err
		}
		defer stream.Close()
		text, err := io.ReadAll(stream)
		return string(text), err
	}
	poll(t, func() string { return "the log is not complete" }, func() bool {
		text, err := read(corev1.PodLogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return text == "one\ntwo\nthree\n"
	})
	if text, err := read(corev1.PodLogOptions{TailLines: new(int64(1))}); err != nil || text != "three\n" {
		t.Errorf("last line: %q, %v", text, err)
	}
	if text, err := read(corev1.PodLogOptions{LimitBytes: new(int64(5))}); err != nil || text != "one\nt" {
		t.Errorf("five bytes: %q, %v", text, err)
	}
	if _, err := read(corev1.PodLogOptions{Previous: true}); err == nil {
		t.Error("the log of a run that never was")
	}
	if _, err := read(corev1.PodLogOptions{Timestamps: true}); err == nil || !strings.Contains(err.Error(), "timestamps is not supported") {
		t.Errorf("timestamps: %v", err)
	}
	stream, err := c.client.CoreV1().Pods("default").GetLogs("talk", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	first := make([]byte, len("one\ntwo\nthree\n"))
	if _, err := io.ReadFull(stream, first); err != nil {
		t.Fatal(err)
	}
	if err := writeHost(c, "/tmp/talk/go"); err != nil {
		t.Fatal(err)
	}
	next := make([]byte, len("four\n"))
	if _, err := io.ReadFull(stream, next); err != nil || string(next) != "four\n" {
		t.Errorf("followed: %q, %v", next, err)
	}
	c.delete(t, "talk")
	if rest, err := io.ReadAll(stream); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v; want the stream to end", rest, err)
	}
}

func TestExecIsRefusedClearly(t *testing.T) {
	c := theCluster(t)
	c.create(t, "noexec", `containers: [{name: main, image: sh, command: [sleep, "1000"]}]`)
	c.until(t, "noexec", isReady)
	request := c.client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name("noexec").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"true"}, Stdout: true}, scheme.ParameterCodec)
	exec, err := remotecommand.NewSPDYExecutor(c.admin, http.MethodPost, request.URL())
	if err != nil {
		t.Fatal(err)
	}
	err = exec.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "the lab's Node serves logs only") {
		t.Errorf("got %v; want it refused with the reason", err)
	}
}
