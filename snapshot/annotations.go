package snapshot

import (
	"fmt"

	"github.com/ashlar-go/ashlar/pickle"
)

// annotations reads external_annotations.
func (im *importer) annotations(v pickle.Value) ([]Annotation, error) {
	list, err := im.list("", "external_annotations", v)
	if err != nil {
		return nil, err
	}
	all := make([]Annotation, 0, len(list))
	for i, v := range list {
		place := fmt.Sprintf("annotation %d", i)
		pairs, err := im.dict(place, v)
		if err != nil {
			return nil, err
		}
		if !im.once(v) {
			return nil, &Error{Place: place, Reason: "the same dict as an earlier one"}
		}
		var a Annotation
		r := reading{im: im}
		r.fields("annotation ", pairs, func(key string, v pickle.Value) bool {
			switch key {
			case "device":
				device, bad := integer(im.doc, key, v)
				r.note(bad)
				a.Device = int(device)
			case "time_us":
				var bad *problem
				a.TimeUS, bad = integer(im.doc, key, v)
				r.note(bad)
			case "name":
				a.Name = r.text(key, v)
			case "stage":
				a.Stage = r.text(key, v)
			case "metadata":
				a.Metadata = r.text(key, v)
			default:
				return false
			}
			return true
		})
		r.require("name", "time_us")
		if r.bad != nil {
			return nil, r.bad.at(place)
		}
		if a.Extra, err = im.extra(r.unknown); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}
