package chaos

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

// tenCoolDowns is for how long load balancers and lbsync are away from each other.
const tenCoolDowns = 10 * coolDown

// outages are what others take away for a while.
func outages() []action {
	return []action{
		{"api-kill", "the API server dies and is started again", fault, apiKill},
		{"api-hang", "the API server stands still for a while", fault, apiHang},
		{"etcd-kill", "etcd dies and is started again", fault, etcdKill},
		{"lbsync-away", "no lbsync reaches the API server for ten cool-downs while Pods come and go", fault, lbsyncAway},
		{"lb-away", "no load balancer can be written for ten cool-downs while Pods come and go", fault, lbAway},
		{"lb-slow", "every call to a load balancer is slow while Deployments are scaled", fault, lbSlow},
		{"lb-failing", "a fifth of the connections to load balancers is reset while Deployments are scaled", fault, lbFailing},
	}
}

// blind does something while the API server tells nothing: no pool may be emptied (I6), and no request fail.
func (s *site) blind(do func() error) (budget, error) {
	s.excuses.set(func(e *excuses) { e.blind = true })
	defer s.excuses.set(func(e *excuses) { e.blind = false })
	return nothing, do()
}

func apiKill(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	return s.blind(func() error {
		err := s.Lab.CrashControlPlane("kube-apiserver")
		return errors.Join(err, sleep(ctx, time.Duration(random.IntN(2000))*time.Millisecond), s.Lab.RecoverControlPlane(ctx))
	})
}

func apiHang(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	return s.blind(func() error {
		err := s.Lab.SignalControlPlane("kube-apiserver", syscall.SIGSTOP)
		return errors.Join(err, sleep(ctx, time.Duration(3000+random.IntN(3000))*time.Millisecond), s.Lab.SignalControlPlane("kube-apiserver", syscall.SIGCONT))
	})
}

func etcdKill(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	return s.blind(func() error {
		err := s.Lab.CrashControlPlane("etcd")
		return errors.Join(err, sleep(ctx, time.Duration(1000+random.IntN(3000))*time.Millisecond), s.Lab.RecoverControlPlane(ctx))
	})
}

func lbsyncAway(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	defer s.weather([]string{"api"}, weather{breaks: true})()
	return s.churn(ctx, random, tenCoolDowns)
}

func lbAway(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	defer s.weather(s.balancers(), weather{breaks: true})()
	return s.churn(ctx, random, tenCoolDowns)
}

// balancers are the relays to load balancers.
func (s *site) balancers() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.relays)), func(name string) bool { return name == "api" })
}

// weather changes that of some relays, and returns what makes it fine again.
func (s *site) weather(relays []string, w weather) (end func()) {
	for _, name := range relays {
		s.relays[name].set(w)
	}
	return func() {
		for _, name := range relays {
			s.relays[name].set(weather{})
		}
	}
}

func lbSlow(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	return s.badWeather(ctx, random, weather{delay: time.Duration(50+random.IntN(150)) * time.Millisecond})
}

func lbFailing(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	return s.badWeather(ctx, random, weather{flaky: 0.2})
}

// badWeather scales up and down while calls go wrong: late, but nothing is lost.
func (s *site) badWeather(ctx context.Context, random *rand.Rand, w weather) (budget, error) {
	defer s.weather(s.balancers(), w)()
	app := pick(random, scalable)
	services := []string{app}
	if app == "dns" {
		services = []string{"dns-avi", "dns-bigip"}
	}
	// Pods go on for three seconds after their deletion; a load balancer that learns of it later than that may lose what it still sends there.
	b := budget{"Pods of which the load balancers learned late", ofServices(services...), 15 * time.Second}
	if err := s.upAndDown(ctx, app, random); err != nil {
		return b, err
	}
	return b, s.rest(ctx)
}
