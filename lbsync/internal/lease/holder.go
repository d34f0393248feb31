package lease

// Holder returns the identity of who holds the Lease as far as this candidate knows, and "" while it knows of nobody.
func (l *Lease) Holder() string {
	l.mu.Lock()
	elector := l.elector
	l.mu.Unlock()
	if elector == nil {
		return ""
	}
	return elector.GetLeader()
}
