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

// leastRest is the shortest time for which the kernel can make a port cool.
const leastRest = time.Millisecond

// program brings the kernel from what it holds to what the entries say, in one transaction. If that fails, what is to be removed and
// to cool gets one of its own, and then each Pod, so that one mapping the kernel refuses holds up no other.
func (l *Loop) program(now time.Time) error {
	maps.DeleteFunc(l.recool, func(_ model.Key, until time.Time) bool { return until.Sub(now) < leastRest })
	remove, set := l.pending()
	if len(remove)+len(set)+len(l.recool) == 0 {
		return nil
	}
	err := l.apply(now, slices.Concat(remove, set), l.recool)
	if err == nil {
		return nil
	}
	l.log.Warn("one transaction for everything failed; making several", zap.Error(err))
	l.reread = true
	if err := l.readAgain(now); err != nil {
		return err
	}
	var errs []error
	if err := l.free(now); err != nil {
		if l.reread = true; l.fresh {
			return err
		}
		errs = append(errs, err)
	}
	_, set = l.pending()
	byPod := map[string][]model.Key{}
	for _, k := range set {
		uid := l.entries[k].id.PodUID
		byPod[uid] = append(byPod[uid], k)
	}
	for _, uid := range slices.Sorted(maps.Keys(byPod)) {
		pod := l.entries[byPod[uid][0]].pod
		if err := l.apply(now, byPod[uid], nil); err != nil {
			errs = append(errs, fmt.Errorf("Pod %s: %w", pod, err))
			l.reread = true // it is not known how far the kernel got
		}
	}
	return errors.Join(errs...)
}

// pending returns the entries whose rules are to be removed, and those whose rules are to be set.
func (l *Loop) pending() (remove, set []model.Key) {
	for _, k := range l.keys() {
		switch e := l.entries[k]; {
		case e.ends():
			remove = append(remove, k)
		case !e.programmed():
			set = append(set, k)
		}
	}
	return remove, set
}

// free removes what is to be removed and makes ports cool: all at once, or else port by port. This comes before anything new: a process
// that comes after this one knows of freed ports by the kernel only. Without tables it is all or nothing.
func (l *Loop) free(now time.Time) error {
	remove, _ := l.pending()
	err := l.apply(now, remove, l.recool)
	keys := l.held()
	if err == nil || l.fresh || len(keys) == 1 {
		return err
	}
	var errs []error
	for _, k := range slices.SortedFunc(maps.Keys(keys), model.Key.Compare) {
		cool := map[model.Key]time.Time{}
		if until, ok := l.recool[k]; ok {
			cool[k] = until
		}
		errs = append(errs, l.apply(now, slices.DeleteFunc(slices.Clone(remove), func(o model.Key) bool { return o != k }), cool))
	}
	return errors.Join(errs...)
}

// held returns the ports that have to cool and of which the kernel does not know it. Until it does, the annotations that list them, or
// the very lack of tables, may be all that tells it to a process that comes after this one: neither is touched.
func (l *Loop) held() map[model.Key]bool {
	out := map[model.Key]bool{}
	remove, _ := l.pending()
	for _, k := range remove {
		out[k] = true
	}
	for k := range l.recool {
		out[k] = true
	}
	return out
}

// apply programs some entries and makes some ports cool, in one transaction, and keeps account of it.
func (l *Loop) apply(now time.Time, touched []model.Key, recool map[model.Key]time.Time) error {
	change := dataplane.Change{Set: map[dataplane.Key]netip.AddrPort{}, Cool: map[dataplane.Key]time.Duration{}}
	for k, until := range recool {
		change.Cool[dataplane.Key(k)] = max(until.Sub(now), leastRest)
	}
	for _, k := range touched {
		e, dk := l.entries[k], dataplane.Key(k)
		if e.live.IsValid() && e.phase != withdrawn { // the address it led to is no longer the Pod's
			change.FlushTCP = append(change.FlushTCP, dk)
		}
		if !e.ends() {
			change.Set[dk] = e.target
			continue
		}
		if e.live.IsValid() {
			change.Delete = append(change.Delete, dk)
		}
		if rest := l.rest(); rest > 0 {
			change.Cool[dk] = max(rest, leastRest)
		}
	}
	if !change.Empty() {
		err := l.kernel.Apply(change)
		l.metrics.transaction(err)
		if err != nil {
			return fmt.Errorf("programming %d node ports and removing %d: %w", len(change.Set), len(change.Delete), err)
		}
		l.fresh = false
	}
	for k, until := range recool {
		l.withdrawals.remembered(now, k, until.Sub(now))
		delete(l.recool, k)
	}
	for _, k := range touched {
		e := l.entries[k]
		if !e.ends() {
			e.live = e.target
			delete(l.withdrawals.kernel, k)
			l.log.Info("node port programmed", l.fields(k, e)...)
			continue
		}
		if e.held {
			l.kernel.Release(dataplane.Key(k))
		}
		l.alloc.Release(k, now.Add(l.settings.CoolDown))
		l.withdrawals.remembered(now, k, l.rest())
		delete(l.entries, k)
		l.log.Info("node port removed", l.fields(k, e)...)
	}
	return nil
}

// readAgain corrects the account by what the kernel really holds.
func (l *Loop) readAgain(now time.Time) error {
	found, err := l.load()
	if err != nil {
		return err
	}
	l.fresh = found.Fresh
	for k, e := range l.entries {
		e.live = found.Mappings[dataplane.Key(k)]
	}
	for dk, target := range found.Mappings {
		if k := model.Key(dk); l.entries[k] == nil {
			l.orphan(k, target)
		}
	}
	clear(l.withdrawals.kernel)
	for k, left := range found.Cooling {
		l.withdrawals.remembered(now, model.Key(k), left)
	}
	l.remember(now)
	for k, until := range l.alloc.Cooling() {
		if _, known := found.Cooling[dataplane.Key(k)]; !known && until.After(now) && l.watermarks == nil {
			l.recool[k] = until
		}
	}
	l.reread = false
	return nil
}

// load reads what the kernel holds.
func (l *Loop) load() (dataplane.Snapshot, error) {
	found, err := l.kernel.Load()
	if err != nil {
		l.metrics.Errors.WithLabelValues(ErrorKernelRead).Inc()
		return found, fmt.Errorf("reading what the kernel holds: %w", err)
	}
	return found, nil
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
		l.metrics.Errors.WithLabelValues(ErrorKernelWrite).Inc()
		l.reread = true
		return fmt.Errorf("comparing the kernel with what it should hold: %w", err)
	}
	l.repaired = now
	if n > 0 {
		l.metrics.Repairs.Add(float64(n))
		l.reread = true // the cooling ports may be gone with them
	}
	return nil
}
