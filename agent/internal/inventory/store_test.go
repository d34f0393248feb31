package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"
)

// number is a record for tests: a ConfigMap's data "n", which matters unless it is 0.
type number struct {
	n       int
	version string
}

// observed is a store of numbers and what it has told.
type observed struct {
	*store[number]
	told []string
}

func observe() *observed {
	o := &observed{}
	o.store = newStore(func(object any) (number, bool) {
		c, ok := object.(*corev1.ConfigMap)
		if !ok {
			return number{}, false
		}
		n, _ := strconv.Atoi(c.Data["n"])
		return number{n, c.ResourceVersion}, n != 0
	}, func(a, b number) bool { return a.n == b.n }, func(old, new *number, version string) {
		show := func(r *number) int {
			if r == nil {
				return 0
			}
			return r.n
		}
		o.told = append(o.told, fmt.Sprintf("%d to %d at %s", show(old), show(new), version))
	})
	return o
}

func configMap(name string, n int, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: version}, Data: map[string]string{"n": strconv.Itoa(n)}}
}

func (o *observed) numbers() []int {
	var out []int
	for _, r := range o.all() {
		out = append(out, r.n)
	}
	slices.Sort(out)
	return out
}

func TestStoreTellsWhatMatters(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(*observed) error
		told []string
		kept []int
	}{
		"an object comes":                 {func(o *observed) error { return o.Add(configMap("b", 2, "20")) }, []string{"0 to 2 at 20"}, []int{1, 2}},
		"it changes":                      {func(o *observed) error { return o.Update(configMap("a", 3, "20")) }, []string{"1 to 3 at 20"}, []int{3}},
		"it changes in nothing we read":   {func(o *observed) error { return o.Update(configMap("a", 1, "20")) }, nil, []int{1}},
		"it no longer matters":            {func(o *observed) error { return o.Update(configMap("a", 0, "20")) }, []string{"1 to 0 at 20"}, nil},
		"it is deleted":                   {func(o *observed) error { return o.Delete(configMap("a", 1, "20")) }, []string{"1 to 0 at 20"}, nil},
		"another that never mattered":     {func(o *observed) error { return o.Add(configMap("b", 0, "20")) }, nil, []int{1}},
		"its deletion":                    {func(o *observed) error { return o.Delete(configMap("b", 0, "20")) }, nil, []int{1}},
		"a list without it":               {func(o *observed) error { return o.Replace(nil, "20") }, []string{"1 to 0 at 20"}, nil},
		"a list where it does not matter": {func(o *observed) error { return o.Replace([]any{configMap("a", 0, "15")}, "20") }, []string{"1 to 0 at 20"}, nil},
		"a list where it has changed":     {func(o *observed) error { return o.Replace([]any{configMap("a", 4, "15")}, "20") }, []string{"1 to 4 at 20"}, []int{4}},
		"a list where it is as it was":    {func(o *observed) error { return o.Replace([]any{configMap("a", 1, "15")}, "20") }, nil, []int{1}},
		"a list with another": {func(o *observed) error {
			return o.Replace([]any{configMap("a", 1, "9"), configMap("b", 2, "15")}, "20")
		}, []string{"0 to 2 at 20"}, []int{1, 2}},
		"a bookmark": {func(o *observed) error { return o.Bookmark("20") }, nil, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			o := observe()
			if err := o.Replace([]any{configMap("a", 1, "9")}, "10"); err != nil {
				t.Fatal(err)
			}
			o.told = nil
			if err := tt.do(o); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.told, o.told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			if got := o.numbers(); !slices.Equal(got, tt.kept) {
				t.Errorf("kept %v, want %v", got, tt.kept)
			}
			if o.at() != "20" {
				t.Errorf("at version %q", o.at())
			}
		})
	}
}

func TestStoreIsSyncedByAListOnly(t *testing.T) {
	o := observe()
	if err := errors.Join(o.Add(configMap("a", 1, "1")), o.Bookmark("2")); err != nil || o.synced() {
		t.Errorf("synced before the first list (%v)", err)
	}
	if err := o.Replace(nil, "3"); err != nil || !o.synced() {
		t.Errorf("not synced after an empty list (%v)", err)
	}
}

// The record is what was kept last, also where only the version differs: nobody is told then, but who asks gets the newest.
func TestStoreKeepsTheNewestRecord(t *testing.T) {
	o := observe()
	if err := errors.Join(o.Add(configMap("a", 1, "1")), o.Update(configMap("a", 1, "2"))); err != nil {
		t.Fatal(err)
	}
	if r, ok := o.get("default/a"); !ok || r.version != "2" || len(o.told) != 1 {
		t.Errorf("kept %v, told %v", r, o.told)
	}
}

// The reflector streams the first list into a store of its own that uses the transformer, lets it follow the objects that change
// meanwhile, and hands the result over. Some of it may be transformed twice.
func TestTransformerKeepsWhatMattersUnderItsKey(t *testing.T) {
	o := observe()
	transform := o.Transformer()
	for name, tt := range map[string]struct {
		in   any
		key  string
		kept bool
	}{
		"matters":           {configMap("a", 1, "1"), "default/a", true},
		"does not matter":   {configMap("a", 0, "1"), "default/a", false},
		"without namespace": {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Data: map[string]string{"n": "1"}}, "n", true},
	} {
		t.Run(name, func(t *testing.T) {
			before := tt.in.(runtime.Object).DeepCopyObject()
			once, err := transform(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if twice, err := transform(once); err != nil || twice != once {
				t.Errorf("f(f(x)) is %v (%v), f(x) is %v", twice, err, once)
			}
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(once); err != nil || key != tt.key {
				t.Errorf("key %q (%v), want %q", key, err, tt.key)
			}
			if _, kept := once.(*item[number]); kept != tt.kept {
				t.Errorf("kept as %T", once)
			}
			if diff := cmp.Diff(before, tt.in); diff != "" {
				t.Errorf("the transformer changed its input:\n%s", diff)
			}
		})
	}
}

// Whatever happens, what is kept is what exists and matters, who was told has seen every change, and a list is the same whether
// it came streamed or not.
func TestStoreFollowsTheCluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := observe()
		exists, seen := map[string]int{}, map[int]int{} // seen: how many objects of each number are told to be there
		o.tell = func(old, new *number, _ string) {
			if old != nil {
				seen[old.n]--
			}
			if new != nil {
				seen[new.n]++
			}
		}
		names := rapid.SampledFrom([]string{"a", "b", "c"})
		version := 0
		next := func() string { version++; return strconv.Itoa(version) }
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				name, n := names.Draw(t, "name"), rapid.IntRange(0, 3).Draw(t, "n")
				exists[name] = n
				if err := o.Update(configMap(name, n, next())); err != nil {
					t.Fatal(err)
				}
			},
			"delete": func(t *rapid.T) {
				name := names.Draw(t, "name")
				n, ok := exists[name]
				if !ok {
					t.Skip("there is none")
				}
				delete(exists, name)
				if err := o.Delete(configMap(name, n, next())); err != nil {
					t.Fatal(err)
				}
			},
			"list": func(t *rapid.T) { // after a gap in the watch
				if name := names.Draw(t, "name"); rapid.Bool().Draw(t, "written") {
					exists[name] = rapid.IntRange(0, 3).Draw(t, "n")
				} else {
					delete(exists, name)
				}
				streamed := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.WithTransformer(o.Transformer()))
				var plain []any
				for _, name := range slices.Sorted(maps.Keys(exists)) {
					c := configMap(name, exists[name], next())
					plain = append(plain, c)
					if err := streamed.Add(c); err != nil {
						t.Fatal(err)
					}
				}
				if rapid.Bool().Draw(t, "streamed") {
					plain = streamed.List()
				}
				if err := o.Replace(plain, next()); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				var want, told []int
				for _, n := range exists {
					if n != 0 {
						want = append(want, n)
					}
				}
				for n, count := range seen {
					for range count {
						told = append(told, n)
					}
				}
				slices.Sort(want)
				slices.Sort(told)
				if got := o.numbers(); !slices.Equal(got, want) || !slices.Equal(told, want) || version > 0 && o.at() != strconv.Itoa(version) {
					t.Fatalf("kept %v, told %v, want %v; version %s of %d", got, told, want, o.at(), version)
				}
			},
		})
	})
}

// streaming is an API server that streams its list, as real ones do and the fake client does not.
type streaming struct{ events *watch.FakeWatcher }

func (s streaming) List(context.Context, metav1.ListOptions) (*corev1.ConfigMapList, error) {
	return nil, errors.New("the reflector did not stream")
}

func (s streaming) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents == nil || !*o.SendInitialEvents {
		return nil, errors.New("the reflector did not ask for the initial events")
	}
	return s.events, nil
}

func TestStoreIsFilledByAStream(t *testing.T) {
	o := observe()
	from := streaming{watch.NewFakeWithChanSize(10, false)}
	from.events.Add(configMap("a", 1, "1"))
	from.events.Add(configMap("b", 0, "2"))
	from.events.Add(configMap("c", 3, "3"))
	from.events.Modify(configMap("c", 0, "4")) // it no longer matters while the list is on its way
	from.events.Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "5", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
	from.events.Add(configMap("d", 4, "6"))
	r := newReflector(nil, from, o.store, &corev1.ConfigMap{}, fields.Everything())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.RunWithContext(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	eventually(t, "the list and what follows it", func() bool { return o.synced() && slices.Equal(o.numbers(), []int{1, 4}) })
	if o.at() != "6" {
		t.Errorf("at version %q", o.at())
	}
}
