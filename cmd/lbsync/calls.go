package main

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// observer is told about each request to a load balancer: the method, the kind of object out of the few that the provider asks for, the status
// (0 is no answer) and how long it took.
type observer func(method, endpoint string, status int, took time.Duration)

// unobserved is for commands that nobody watches.
func unobserved(string) observer { return nil }

// observeCalls registers the metric of requests to load balancers and returns the observer of each by its name.
func observeCalls(registry prometheus.Registerer) (func(provider string) observer, error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "lbsync_provider_request_duration_seconds", Buckets: prometheus.ExponentialBuckets(0.005, 4, 7),
		Help: "Duration of one request to the API of a load balancer, by what it was about and the status of the answer, 0 without one. HAProxy has no such API.",
	}, []string{"provider", "method", "endpoint", "code"})
	if err := registry.Register(seconds); err != nil {
		return nil, err
	}
	return func(provider string) observer {
		return func(method, endpoint string, status int, took time.Duration) {
			seconds.WithLabelValues(provider, method, endpoint, strconv.Itoa(status)).Observe(took.Seconds())
		}
	}, nil
}
