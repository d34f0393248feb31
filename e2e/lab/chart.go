package lab

import "context"

func (l *Lab) InstallChart(ctx context.Context, values ...string) error { return nil }

func (l *Lab) StartLoadBalancer(ctx context.Context) error { return nil }

func (l *Lab) LoadBalancer() *LoadBalancer { return l.loadBalancer }
