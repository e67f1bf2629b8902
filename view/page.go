package view

import (
	"embed"
	"io/fs"
	"mime"
	"net/http"
	"path"
)

//go:embed page
var embedded embed.FS

// pageFiles are the files of the page: index.html, style.css and modules.
var pageFiles = func() fs.FS {
	files, err := fs.Sub(embedded, "page")
	if err != nil {
		panic("view: " + err.Error())
	}
	return files
}()

// moduleMap is the import map of index.html: modules import each other as "ashlar/NAME.js".
const moduleMap = `{"imports":{"ashlar/":"./"}}`

// servePage answers a request for a file of the page.
func servePage(w http.ResponseWriter, q *http.Request) {
	name := q.PathValue("file")
	if name == "" {
		name = "index.html"
	}
	text, err := fs.ReadFile(pageFiles, name)
	if err != nil {
		refuse(w, http.StatusNotFound, "the page has no such file")
		return
	}
	kind := mime.TypeByExtension(path.Ext(name))
	if path.Ext(name) == ".js" {
		kind = "text/javascript; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(text) // an error means that the browser left
}
