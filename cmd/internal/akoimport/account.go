package akoimport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// hidden stands where a secret would.
const hidden = "(not read)"

// reference names a Secret.
type reference struct{ namespace, name string }

func (r reference) String() string { return r.namespace + "/" + r.name }

// adminSecret is the operator's account, which AKO uses too where it is given no other.
func adminSecret(im *importer, at string, value any) {
	if ref, ok := im.reference(at, value); !ok {
		return
	} else if empty(im.lookupRaw("workloadCredentialRef")) {
		im.password = ref
		im.secretFrom(at, ref, "the password is not copied: make the Secret as shown below; "+accountNote)
	} else {
		im.add(Key{Key: at, Value: ref.String(), Verdict: NotNeeded, Note: "it is the operator's; AKO itself uses workloadCredentialRef"})
	}
}

func workloadSecret(im *importer, at string, value any) {
	if ref, ok := im.reference(at, value); ok {
		im.password = ref
		im.secretFrom(at, ref, "the password is not copied: make the Secret as shown below")
	}
}

func caSecret(im *importer, at string, value any) {
	if ref, ok := im.reference(at, value); ok {
		im.ca = ref
		im.secretFrom(at, ref, "the certificates are not copied: make the Secret as shown below")
	}
}

func (im *importer) secretFrom(at string, ref reference, note string) {
	im.mapped(at, ref.String(), "lbsync.existingSecret", im.options.Secret, note)
}

// reference reads namespace and name of a Secret, or reports why they are none.
func (im *importer) reference(at string, value any) (reference, bool) {
	if empty(value) {
		im.add(Key{Key: at, Verdict: NotNeeded, Note: "empty"})
		return reference{}, false
	}
	tree, _ := value.(map[string]any)
	fields := []string{"name", "namespace"}
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if !slices.Contains(fields, key) {
			im.unknown(at+"."+key, key, fields, tree[key])
		}
	}
	ref := reference{textOf(tree["namespace"]), textOf(tree["name"])}
	if len(validation.IsDNS1123Label(ref.namespace)) > 0 || len(validation.IsDNS1123Subdomain(ref.name)) > 0 {
		im.add(Key{Key: at, Value: "(" + shape(value) + ")", Verdict: NotSupported, Note: "want name and namespace of a Secret"})
		return reference{}, false
	}
	return ref, true
}

func username(im *importer, at string, value any) {
	given(func(im *importer, at string, value any) {
		switch value.(type) {
		case string, float64:
		default:
			im.add(Key{Key: at, Value: "(" + shape(value) + ")", Verdict: NotSupported, Note: "a text belongs here; give the account by --username"})
			return
		}
		im.accountSeen = true
		im.mapped(at, value, "lbsync.config.avi.username", cmp.Or(im.options.Username, show(value)), accountNote)
	})(im, at, value)
}

const accountNote = "an account of its own, with the role of docs/how-to/avi.md, needs fewer rights than AKO's"

// secret is what is never copied.
func secret(im *importer, at string, value any) {
	if empty(value) {
		im.add(Key{Key: at, Verdict: NotNeeded, Note: "empty"})
		return
	}
	im.mapped(at, hidden, "lbsync.existingSecret", im.options.Secret, "secrets are not copied: make the Secret as shown below")
}

// authToken is a secret that AKO uses instead of a password.
func authToken(im *importer, at string, value any) {
	secret(im, at, value)
	if empty(value) || !empty(im.lookupRaw("avicredentials", "password")) {
		return
	}
	im.token = true
	im.set("lbsync.config.avi.passwordFile", "")
	im.set("lbsync.config.avi.tokenFile", "/etc/nplbridge/avi/token")
}

// absent adds what AKO has by default and the chart has not, and the account where the input does not name it.
func (im *importer) absent() {
	if empty(im.lookup("L7Settings.serviceType")) {
		im.mapped(im.key("L7Settings.serviceType"), "(absent)", "serviceType", im.kind, "AKO's default")
	}
	if im.source.form == operator && empty(im.lookup("AKOSettings.cniPlugin")) {
		im.antrea(im.key("AKOSettings.cniPlugin"), "(absent: antrea)")
	}
	if !im.accountSeen {
		name := cmp.Or(im.options.Username, DefaultUsername)
		im.mapped("(account)", "(absent)", "lbsync.config.avi.username", name, "the input does not name it, --username does; "+accountNote)
	}
	if im.source.form == operator {
		group, _, _ := strings.Cut(im.source.apiVersion, "/")
		if group == groupOld {
			im.add(Key{Key: "apiVersion", Value: im.source.apiVersion, Verdict: NotNeeded, Note: "the group is " + groupOperator + "; that of the operator's sample was taken for it"})
		}
	}
}

// commands are what to type next. They hold no secret, neither in their text nor, when they run, in their arguments.
func (im *importer) commands() []string {
	namespace := im.options.Namespace
	if im.source.form != operator {
		from := reference{akoNamespace, "avi-secret"}
		if im.source.form == configMap && len(validation.IsDNS1123Label(im.source.namespace)) == 0 {
			from.namespace = im.source.namespace
		}
		im.password = from
		if im.source.form == configMap || !empty(im.lookup("avicredentials.certificateAuthorityData")) {
			im.ca = from
		}
	}
	file, key := "password", "password"
	if im.token {
		file, key = "token", "authtoken"
	}
	lines := []string{fmt.Sprintf("kubectl -n %s create secret generic %s", namespace, im.options.Secret), "--from-file=" + file + "=" + im.read(im.password, key)}
	var notes string
	if im.password == (reference{}) {
		notes = "# Instead of FILE give a file with the account's password: the input names no Secret that has it.\n"
	}
	const get = "et the certificate of the Controller's authority, see docs/how-to/avi.md, and "
	switch {
	case im.ca == (reference{}):
		notes += "# G" + get + "add --from-file=ca.crt=ITS-FILE: the input has none.\n"
	case im.source.form == configMap: // it says nothing of the Secret
		notes += fmt.Sprintf("# If %s has no certificateAuthorityData, g%sgive its file to --from-file=ca.crt.\n", im.ca, get)
		fallthrough
	default:
		lines = append(lines, "--from-file=ca.crt="+im.read(im.ca, "certificateAuthorityData"))
	}
	return []string{
		notes + strings.Join(lines, " \\\n    "),
		fmt.Sprintf("helm upgrade --install nplbridge charts/nplbridge --namespace %s --values values.yaml", namespace),
	}
}

// read is a file that the shell makes of a key of a Secret, or a file's name where no Secret is known.
func (im *importer) read(from reference, key string) string {
	if from == (reference{}) {
		return "FILE"
	}
	context := ""
	if im.source.form == operator {
		context = "--context MANAGEMENT-CLUSTER "
	}
	return fmt.Sprintf("<(kubectl %s-n %s get secret %s -o jsonpath='{.data.%s}' | base64 -d)", context, from.namespace, from.name, key)
}
