package claims

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

var (
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	marked  = regexp.MustCompile(`<a id="([a-z-]+)"></a>`)
	linked  = regexp.MustCompile(`\[([^]]*)\]\(([^)\s]*)\)`)
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	quoted  = regexp.MustCompile("`([^`]+)`")
	typed   = regexp.MustCompile(`(?m)^ *[$#] (.*)$`)
	comment = regexp.MustCompile(`\s+#.*`)
	unslug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// prose is a page without its blocks of code.
func prose(page string) string { return fence.ReplaceAllString(page, "") }

// anchors returns what a link to a page may have after its #, as GitHub makes it of the headings, and its marks.
func anchors(page string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(prose(page), -1) {
		first := slug(m[1])
		anchor := first
		for i := 1; out[anchor]; i++ {
			anchor = fmt.Sprintf("%s-%d", first, i)
		}
		out[anchor] = true
	}
	for _, m := range marked.FindAllStringSubmatch(page, -1) {
		out[m[1]] = true
	}
	return out
}

// slug is the anchor of the first heading of that text.
func slug(text string) string {
	return strings.ReplaceAll(unslug.ReplaceAllString(strings.ToLower(linked.ReplaceAllString(text, "$1")), ""), " ", "-")
}

// link is a link from one page to a place of another, or of itself.
type link struct{ page, anchor string }

// links returns those of a page that lead into the tree.
func links(file, page string) (out []link) {
	for _, m := range linked.FindAllStringSubmatch(prose(page), -1) {
		to, anchor, _ := strings.Cut(m[2], "#")
		switch {
		case strings.Contains(to, ":"):
		case to == "":
			out = append(out, link{file, anchor})
		default:
			out = append(out, link{path.Join(path.Dir(file), to), anchor})
		}
	}
	return out
}

// spans returns what a text quotes, and what its consoles are told to run.
func spans(page string) (out []string) {
	for paragraph := range strings.SplitSeq(prose(page), "\n\n") {
		for _, m := range quoted.FindAllStringSubmatch(paragraph, -1) {
			out = append(out, strings.Join(strings.Fields(m[1]), " ")) // a line may end in it
		}
	}
	for _, block := range fence.FindAllString(page, -1) {
		for _, m := range typed.FindAllStringSubmatch(block, -1) {
			out = append(out, comment.ReplaceAllString(m[1], ""))
		}
	}
	return out
}

// section is what stands below a heading, up to the next one.
type section struct{ title, text string }

func sections(page string) (out []section) {
	text, title, from := prose(page), "", 0
	for _, m := range heading.FindAllStringSubmatchIndex(text, -1) {
		out = append(out, section{title, text[from:m[0]]})
		title, from = text[m[2]:m[3]], m[1]
	}
	return append(out, section{title, text[from:]})
}

// split is a shell's way to make words, as far as the documentation goes.
func split(command string) (words []string) {
	var word strings.Builder
	quote, any := rune(0), false
	for _, r := range command {
		switch {
		case r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, any = r, true
		case quote == 0 && r == ' ':
			if any || word.Len() > 0 {
				words = append(words, word.String())
			}
			word.Reset()
			any = false
		default:
			word.WriteRune(r)
		}
	}
	if any || word.Len() > 0 {
		words = append(words, word.String())
	}
	return words
}
