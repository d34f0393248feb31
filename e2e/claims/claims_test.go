package claims

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// proof is the page that has each claim once.
const proof = "docs/explanation/proof.md"

// row is a claim of that page.
type row struct {
	id       string
	section  string // the anchor of its heading
	commands []string
	cases    []string
	kinds    []string
	said     []string // files
}

var (
	rowPattern  = regexp.MustCompile(`^\| <a id="([a-z-]+)"></a>(.+?) \| (.+) \| (.+) \| (.+) \|$`)
	casePattern = regexp.MustCompile(`\b(?:NPL|AVI|BIGIP)\d+\b`)
	testPattern = regexp.MustCompile(`^(?:Test|Benchmark)[A-Z]\w*$`)
)

// rows reads the page; what stands in a table of claims and is none is an error.
func rows(page string) (out []row, kinds []string, problems []string) {
	inside, under, seen := "", "", map[string]bool{}
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case !strings.HasPrefix(line, "|"):
			if m := heading.FindStringSubmatch(line); m != nil {
				under = slug(m[1])
			}
			inside = ""
		case strings.HasPrefix(line, "|---"):
		case inside == "":
			inside = line
		case strings.HasPrefix(inside, "| Kind |"):
			kinds = append(kinds, strings.TrimSpace(strings.Split(line, "|")[1]))
		case strings.HasPrefix(inside, "| Claim |"):
			m := rowPattern.FindStringSubmatch(line)
			if m == nil || strings.Count(line, " | ") != 3 || seen[m[1]] {
				problems = append(problems, "no row of its own name with four columns: "+line)
				continue
			}
			seen[m[1]] = true
			r := row{id: m[1], section: under, commands: spans(m[3]), cases: casePattern.FindAllString(m[3], -1), kinds: strings.Split(m[4], ", ")}
			for _, l := range links(proof, m[5]) {
				r.said = append(r.said, l.page)
			}
			out = append(out, r)
		}
	}
	return out, kinds, problems
}

func TestEachClaimIsShown(t *testing.T) {
	tr := look(t)
	all, kinds, problems := rows(tr.pages[proof])
	for _, problem := range problems {
		t.Error(problem)
	}
	if len(all) < 40 || len(kinds) < 5 {
		t.Fatalf("%d claims of %d kinds: the pattern is wrong", len(all), len(kinds))
	}
	for _, r := range all {
		t.Run(r.id, func(t *testing.T) {
			if len(r.commands)+len(r.cases) == 0 && !slices.Equal(r.kinds, []string{"derived"}) {
				t.Error("neither a command nor a case")
			}
			for _, kind := range r.kinds {
				if !slices.Contains(kinds, kind) {
					t.Errorf("kind %q is not explained above", kind)
				}
			}
			for _, command := range r.commands {
				if !strings.HasPrefix(command, "make ") && !strings.HasPrefix(command, "go ") {
					t.Errorf("%q is no command", command)
				}
			}
			for _, name := range r.cases {
				if !tr.hasCase(name) {
					t.Errorf("there is no case %s", name)
				}
			}
			if len(r.said) == 0 {
				t.Error("no page says so")
			}
			for _, file := range r.said {
				if page, ok := tr.pages[file]; !ok || !leads(r, file, page) {
					t.Errorf("%s neither leads here nor names one of the commands", file)
				}
			}
		})
	}
}

// leads reports whether a page leads to a row: by a link to it or to its section, by one of its commands, or, where nothing was run, by saying so.
func leads(r row, file, page string) bool {
	named := slices.ContainsFunc(r.commands, func(c string) bool { return names(page, c) })
	derived := slices.Contains(r.kinds, "derived") && strings.Contains(page, "derived")
	return named || derived || slices.ContainsFunc(links(file, page), func(l link) bool { return l.page == proof && (l.anchor == r.id || l.anchor == r.section) })
}

// names reports whether a page names a command: the same target of make, program, or package and tests.
func names(page, command string) bool {
	words := split(command)
	if len(words) < 2 {
		return false
	}
	switch {
	case words[0] == "make":
		return strings.Contains(page, "`make "+words[1]) || strings.Contains(page, "$ make "+words[1])
	case words[1] == "run":
		return strings.Contains(page, strings.Join(words[:3], " "))
	}
	for _, word := range words[2:] {
		if !strings.HasPrefix(word, "-") && word != "^$" && word != "." && !strings.Contains(page, word) {
			return false
		}
	}
	return true
}

// The other way round: what leads to a claim is among those who make it.
func TestWhoeverLeadsToAClaimIsNamed(t *testing.T) {
	tr := look(t)
	all, _, _ := rows(tr.pages[proof])
	for file, page := range tr.pages {
		for _, l := range links(file, page) {
			if l.page != proof || l.anchor == "" || file == proof {
				continue
			}
			if !slices.ContainsFunc(all, func(r row) bool { return (l.anchor == r.id || l.anchor == r.section) && slices.Contains(r.said, file) }) {
				t.Errorf("%s leads to %s#%s, where it is not named", file, proof, l.anchor)
			}
		}
	}
}

func TestLinksReachTheirAnchors(t *testing.T) {
	tr := look(t)
	seen := 0
	for file, page := range tr.pages {
		for _, l := range links(file, page) {
			if to, ok := tr.pages[l.page]; ok && l.anchor != "" {
				seen++
				if !anchors(to)[l.anchor] {
					t.Errorf("%s links to %s#%s, which is not there", file, l.page, l.anchor)
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d links found: the pattern is wrong", seen)
	}
}

func TestCommandsExist(t *testing.T) {
	tr := look(t)
	var tests []string
	for _, names := range tr.tests {
		tests = append(tests, names...)
	}
	for file, page := range tr.pages {
		for _, span := range spans(page) {
			if err := tr.problem(span); err != nil {
				t.Errorf("%s: `%s`: %v", file, span, err)
			}
			if testPattern.MatchString(span) && !slices.Contains(tests, span) {
				t.Errorf("%s: there is no %s", file, span)
			}
		}
	}
}

// What is looked at and not there is noticed.
func TestCommandsThatDoNotExist(t *testing.T) {
	tr := look(t)
	for command, want := range map[string]string{
		"make chaos SEED=7 DURATION=20m":                  "",
		"make chaos ARGS=--script=rollout:1,agent-kill:2": "",
		"make chaos ARGS=--script=rollout:1,nothing:2":    `no action "nothing"`,
		"make peace":                             `no target "peace"`,
		"go test ./e2e/claims -run TestCommands": "",
		"go test ./e2e/claims -run 'TestCommandsExist|TestNothing'":     `nothing is called "TestNothing"`,
		"go test ./e2e/claims -run '^(TestCommandsExist|TestCommand)$'": `nothing is called "TestCommand"`,
		"go test ./e2e/claims -run '^$' -bench .":                       `nothing is called "."`,
		"go test ./e2e/stories -run /restart":                           "",
		"go test ./e2e/stories -run /nothing":                           `nothing is called "nothing"`,
		"go test ./e2e/stories -run 'TestStories/^(gate|nothing)$'":     `nothing is called "nothing"`,
		"go test ./nothing":                           "no tests in ./nothing",
		"go test ./nothing/...":                       "nothing in ./nothing",
		"go test ./agent/...":                         "",
		"go run ./e2e/cmd/bench --only ready,nothing": `no part "nothing"`,
		"go run ./e2e/cmd/nothing":                    "no program",
		"kubectl get pods":                            "",
	} {
		if err := tr.problem(command); fmt.Sprint(err) == "<nil>" != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", command, err, want)
		}
	}
}

var (
	// claims are the words by which speed or safety is promised.
	claimed = regexp.MustCompile(`(?i)no request|loses? (?:no|nothing)|no connection notices|kill -9|never (?:touched|empty|emptied|changes|read)|` +
		`nothing is (?:removed|written|lost)|writes? nothing|neither writes|without an interruption|\d ?(?:ms|µs|us|MiB)\b|\btimes as (?:fast|long|much)`)
	// shown is what may stand beside them.
	shown = regexp.MustCompile("proof\\.md#|`(?:make|go test|go run) |`Test[A-Z]|e2e/[a-z]|(?i:derived|modelled|by hand)")
	// reading are the pages that make claims: the others look up a fact, or are generated.
	reading = regexp.MustCompile(`^(?:README|SECURITY|docs/(?:explanation|how-to|tutorial)/[a-z/-]+)\.md$`)
	// about are the pages that one command is behind, which they begin with.
	about = map[string]string{
		proof:                             "`make test`",
		"docs/explanation/chaos.md":       "`make chaos`",
		"docs/explanation/nodeport.md":    "`make bench-dataplane`",
		"docs/explanation/performance.md": "`make bench`",
	}
)

func TestClaimsPointToWhatShowsThem(t *testing.T) {
	tr := look(t)
	found := 0
	for file, page := range tr.pages {
		if !reading.MatchString(file) {
			continue
		}
		if command, ok := about[file]; ok {
			if opening, _, _ := strings.Cut(page, "\n## "); !strings.Contains(opening, command) {
				t.Errorf("%s does not begin with %s", file, command)
			}
			continue
		}
		for _, s := range sections(page) {
			if claim := claimed.FindString(s.text); claim != "" {
				found++
				if !shown.MatchString(s.text) {
					t.Errorf("%s, under %q: %q, and nothing there says what shows it; link to %s, name the command, or say that it is derived", file, s.title, claim, proof)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d sections claim anything: the pattern is wrong", found)
	}
}

func TestAnchors(t *testing.T) {
	got := anchors("# Of `a`, [b](c.md) and *d*\n\n## Twice\n\n```console\n# no heading\n```\n\n## Twice\n\n| <a id=\"mark\"></a>x |\n")
	for _, want := range []string{"of-a-b-and-d", "twice", "twice-1", "mark"} {
		if !got[want] {
			t.Errorf("no anchor %q", want)
		}
	}
	if len(got) != 4 {
		t.Errorf("%v", got)
	}
}
