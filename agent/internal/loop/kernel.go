package loop

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/model"
)

// program brings the kernel from what it holds to what the entries say, in one transaction. If that fails, each Pod gets a
// transaction of its own, so that one mapping the kernel refuses holds up no other.
func (l *Loop) program(now time.Time) (err error) {
	maps.DeleteFunc(l.recool, func(_ model.Key, until time.Time) bool { return until.Sub(now) < time.Millisecond })
	var touched []model.Key
	for _, k := range l.keys() {
		if e := l.entries[k]; e.ends() || !e.programmed() {
			touched = append(touched, k)
		}
	}
	if len(touched) == 0 && len(l.recool) == 0 {
		return nil
	}
	if err = l.apply(now, touched, l.recool); err == nil {
		return nil
	}
	l.reread = true // it is not known how far the kernel got
	defer func() { err = errors.Join(err, l.readAgain(now)) }()
	byPod := map[string][]model.Key{}
	for _, k := range touched {
		uid := l.entries[k].id.PodUID
		byPod[uid] = append(byPod[uid], k)
	}
	if len(byPod) < 2 && len(l.recool) == 0 {
		return err
	}
	l.log.Warn("one transaction for all Pods failed; making one for each", zap.Error(err))
	var errs []error
	for _, uid := range slices.Sorted(maps.Keys(byPod)) {
		pod := l.entries[byPod[uid][0]].pod
		if err := l.apply(now, byPod[uid], nil); err != nil {
			errs = append(errs, fmt.Errorf("Pod %s: %w", pod, err))
		}
	}
	return errors.Join(errs...)
}

// apply programs some entries and makes some ports cool, in one transaction, and keeps account of it.
func (l *Loop) apply(now time.Time, touched []model.Key, recool map[model.Key]time.Time) error {
	change := dataplane.Change{Set: map[dataplane.Key]netip.AddrPort{}, Cool: map[dataplane.Key]time.Duration{}}
	for k, until := range recool {
		change.Cool[dataplane.Key(k)] = until.Sub(now)
	}
	for _, k := range touched {
		e, dk := l.entries[k], dataplane.Key(k)
		if e.phase == gone || !e.ends() && e.live.IsValid() { // the address it led to is no longer the Pod's
			change.FlushTCP = append(change.FlushTCP, dk)
		}
		if !e.ends() {
			change.Set[dk] = e.target
			continue
		}
		change.Delete = append(change.Delete, dk)
		if l.settings.CoolDown > 0 {
			change.Cool[dk] = l.settings.CoolDown
		}
	}
	if change.Empty() {
		return nil
	}
	if err := l.kernel.Apply(change); err != nil {
		return fmt.Errorf("programming %d node ports and removing %d: %w", len(change.Set), len(change.Delete), err)
	}
	for k := range recool {
		delete(l.recool, k)
	}
	for _, k := range touched {
		e := l.entries[k]
		if !e.ends() {
			e.live = e.target
			l.log.Info("node port programmed", l.fields(k, e)...)
			continue
		}
		if e.held {
			l.kernel.Release(dataplane.Key(k))
		}
		l.alloc.Release(k, now.Add(l.settings.CoolDown))
		delete(l.entries, k)
		l.log.Info("node port removed", l.fields(k, e)...)
	}
	return nil
}

// readAgain corrects the account by what the kernel really holds.
func (l *Loop) readAgain(now time.Time) error {
	found, err := l.kernel.Load()
	if err != nil {
		return fmt.Errorf("reading what the kernel holds: %w", err)
	}
	for k, e := range l.entries {
		e.live = found.Mappings[dataplane.Key(k)]
	}
	for dk, target := range found.Mappings {
		if k := model.Key(dk); l.entries[k] == nil {
			l.orphan(k, target)
		}
	}
	for k, until := range l.alloc.Cooling() {
		if _, known := found.Cooling[dataplane.Key(k)]; !known && until.After(now) {
			l.recool[k] = until
		}
	}
	l.reread = false
	return nil
}

// orphan takes charge of a rule that belongs to no Pod, so that the next transaction removes it.
func (l *Loop) orphan(k model.Key, target netip.AddrPort) {
	if err := l.alloc.Adopt(k, model.ID{}); err != nil { // whoever has a port has an entry
		panic("loop: " + err.Error())
	}
	l.entries[k] = &entry{live: target, phase: gone}
}

func (l *Loop) fields(k model.Key, e *entry) []zap.Field {
	return []zap.Field{
		zap.String("pod", e.pod), zap.String("uid", e.id.PodUID), zap.Uint16("podPort", e.id.PodPort),
		zap.String("protocol", string(k.Protocol)), zap.String("family", string(k.Family)), zap.Uint16("nodePort", k.NodePort),
	}
}

// compare has the dataplane compare the kernel with what was programmed, every RepairInterval and when Repair was called.
func (l *Loop) compare(now time.Time) error {
	if !l.repairNow.Swap(false) && now.Before(l.repaired.Add(l.settings.RepairInterval)) {
		return nil
	}
	want := map[dataplane.Key]netip.AddrPort{}
	for k, e := range l.entries {
		if e.live.IsValid() {
			want[dataplane.Key(k)] = e.live
		}
	}
	n, err := l.kernel.Repair(want)
	if err != nil {
		l.reread = true
		return fmt.Errorf("comparing the kernel with what it should hold: %w", err)
	}
	l.repaired = now
	if n > 0 {
		l.metrics.Repairs.Add(float64(n))
		l.log.Warn("somebody changed our tables; repaired", zap.Int("repaired", n))
		l.reread = true // the cooling ports may be gone with them
	}
	return nil
}
