package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// repository is an image's name without tag and digest.
func repository(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return name
}

// program finds the local program an image stands for.
func program(programs map[string]string, image string) (string, error) {
	if path, ok := programs[repository(image)]; ok {
		return path, nil
	}
	known := strings.Join(slices.Sorted(maps.Keys(programs)), ", ")
	return "", fmt.Errorf("image %q: the lab pulls no images and has no local program for %q; it knows %s", image, repository(image), known)
}
