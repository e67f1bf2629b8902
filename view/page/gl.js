// Rectangles, drawn by WebGL2 as indexed triangles, or by Canvas2D where a browser has no WebGL2. Instanced quads
// would be ten times as slow with a software renderer.

const vertexShader = `#version 300 es
in vec2 corner;
in vec4 rgba;
uniform vec2 scale, shift;
out vec4 colour;
void main() {
  colour = rgba;
  gl_Position = vec4(corner * scale + shift, 0.0, 1.0);
}`

const fragmentShader = `#version 300 es
precision mediump float;
in vec4 colour;
out vec4 fragment;
void main() { fragment = colour; }`

// A Rects draws a set of rectangles on a canvas. Coordinates are relative to an origin, which keeps 32-bit floats
// exact enough at any zoom: a view that zooms in loads new rectangles with a new origin.
class GLRects {
  constructor(canvas, gl) {
    this.canvas = canvas
    this.gl = gl
    this.count = 0
    this.restore()
    canvas.addEventListener('webglcontextlost', (e) => e.preventDefault())
    canvas.addEventListener('webglcontextrestored', () => {
      this.restore()
      if (this.data) this.set(this.data)
      canvas.dispatchEvent(new Event('redraw'))
    })
  }

  // restore makes the program and the buffers, which are lost with the context.
  restore() {
    const gl = this.gl
    const program = gl.createProgram()
    for (const [type, source] of [
      [gl.VERTEX_SHADER, vertexShader],
      [gl.FRAGMENT_SHADER, fragmentShader],
    ]) {
      const shader = gl.createShader(type)
      gl.shaderSource(shader, source)
      gl.compileShader(shader)
      gl.attachShader(program, shader)
    }
    gl.linkProgram(program)
    this.program = program
    this.scale = gl.getUniformLocation(program, 'scale')
    this.shift = gl.getUniformLocation(program, 'shift')
    this.array = gl.createVertexArray()
    gl.bindVertexArray(this.array)
    this.corners = gl.createBuffer()
    this.colours = gl.createBuffer()
    this.indices = gl.createBuffer()
    this.indexed = 0
    const corner = gl.getAttribLocation(program, 'corner')
    gl.bindBuffer(gl.ARRAY_BUFFER, this.corners)
    gl.enableVertexAttribArray(corner)
    gl.vertexAttribPointer(corner, 2, gl.FLOAT, false, 0, 0)
    const rgba = gl.getAttribLocation(program, 'rgba')
    gl.bindBuffer(gl.ARRAY_BUFFER, this.colours)
    gl.enableVertexAttribArray(rgba)
    gl.vertexAttribPointer(rgba, 4, gl.UNSIGNED_BYTE, true, 0, 0)
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.indices)
    gl.bindVertexArray(null)
  }

  // set replaces the rectangles: {count, x0, x1, y0, y1, rgba}, drawn in this order.
  set(data) {
    const gl = this.gl
    const n = data.count
    const corners = new Float32Array(8 * n)
    for (let i = 0, c = 0; i < n; i++, c += 8) {
      corners[c] = corners[c + 4] = data.x0[i]
      corners[c + 2] = corners[c + 6] = data.x1[i]
      corners[c + 1] = corners[c + 3] = data.y0[i]
      corners[c + 5] = corners[c + 7] = data.y1[i]
    }
    gl.bindVertexArray(this.array)
    gl.bindBuffer(gl.ARRAY_BUFFER, this.corners)
    gl.bufferData(gl.ARRAY_BUFFER, corners, gl.STATIC_DRAW)
    this.index(n)
    gl.bindVertexArray(null)
    this.count = n
    this.data = data
    this.recolour(data.rgba)
  }

  // index makes sure of the indices of n rectangles: two triangles for each four corners.
  index(n) {
    if (n <= this.indexed) return
    const indices = new Uint32Array(6 * n)
    for (let i = 0, v = 0; i < indices.length; i += 6, v += 4) {
      indices[i] = v
      indices[i + 1] = indices[i + 3] = v + 1
      indices[i + 2] = indices[i + 4] = v + 2
      indices[i + 5] = v + 3
    }
    this.gl.bufferData(this.gl.ELEMENT_ARRAY_BUFFER, indices, this.gl.STATIC_DRAW)
    this.indexed = n
  }

  // recolour replaces the colours: a Uint32Array, one colour a rectangle, with red in the lowest byte.
  recolour(rgba) {
    const colours = new Uint32Array(4 * rgba.length)
    for (let i = 0; i < rgba.length; i++) colours.fill(rgba[i], 4 * i, 4 * i + 4)
    const gl = this.gl
    gl.bindBuffer(gl.ARRAY_BUFFER, this.colours)
    gl.bufferData(gl.ARRAY_BUFFER, colours, gl.STATIC_DRAW)
    this.data.rgba = rgba
  }

  // draw draws the first limit rectangles. The view is {x0, x1, y0, y1} in the units of the rectangles; box is the
  // part of the canvas, in its pixels from the top left, that shows it.
  draw(view, box, background, limit = this.count) {
    const gl = this.gl
    gl.viewport(0, 0, this.canvas.width, this.canvas.height)
    gl.disable(gl.SCISSOR_TEST)
    gl.clearColor(background[0] / 255, background[1] / 255, background[2] / 255, 1)
    gl.clear(gl.COLOR_BUFFER_BIT)
    const bottom = this.canvas.height - box.y - box.height
    gl.viewport(box.x, bottom, box.width, box.height)
    gl.enable(gl.SCISSOR_TEST)
    gl.scissor(box.x, bottom, box.width, box.height)
    const n = Math.min(limit, this.count)
    if (n === 0) return
    gl.useProgram(this.program)
    const sx = 2 / (view.x1 - view.x0)
    const sy = 2 / (view.y1 - view.y0)
    gl.uniform2f(this.scale, sx, sy)
    gl.uniform2f(this.shift, -1 - view.x0 * sx, -1 - view.y0 * sy)
    gl.bindVertexArray(this.array)
    gl.drawElements(gl.TRIANGLES, 6 * n, gl.UNSIGNED_INT, 0)
    gl.bindVertexArray(null)
  }

  // close releases the context, of which a browser has few.
  close() {
    this.gl.getExtension('WEBGL_lose_context')?.loseContext()
  }

  // software reports whether the browser draws without a GPU.
  software() {
    const info = this.gl.getExtension('WEBGL_debug_renderer_info')
    const name = info ? this.gl.getParameter(info.UNMASKED_RENDERER_WEBGL) : this.gl.getParameter(this.gl.RENDERER)
    return /swiftshader|llvmpipe|softpipe|software|basic render/i.test(name)
  }
}

class CanvasRects {
  constructor(canvas) {
    this.canvas = canvas
    this.context = canvas.getContext('2d', { alpha: false })
    this.count = 0
  }

  set(data) {
    this.data = data
    this.count = data.count
  }

  recolour(rgba) {
    this.data.rgba = rgba
  }

  draw(view, box, background, limit = this.count) {
    const c = this.context
    c.setTransform(1, 0, 0, 1, 0, 0)
    c.fillStyle = `rgb(${background.join()})`
    c.fillRect(0, 0, this.canvas.width, this.canvas.height)
    const n = Math.min(limit, this.count)
    const d = this.data
    const sx = box.width / (view.x1 - view.x0)
    const sy = box.height / (view.y1 - view.y0)
    const bottom = box.y + box.height
    c.save()
    c.beginPath()
    c.rect(box.x, box.y, box.width, box.height)
    c.clip()
    let last = -1
    for (let i = 0; i < n; i++) {
      if (d.x1[i] < view.x0 || d.x0[i] > view.x1 || d.y1[i] < view.y0 || d.y0[i] > view.y1) continue
      if (d.rgba[i] !== last) {
        last = d.rgba[i]
        c.fillStyle = `rgb(${last & 255},${(last >> 8) & 255},${(last >> 16) & 255})`
      }
      const x = box.x + (d.x0[i] - view.x0) * sx
      c.fillRect(x, bottom - (d.y1[i] - view.y0) * sy, (d.x1[i] - d.x0[i]) * sx, (d.y1[i] - d.y0[i]) * sy)
    }
    c.restore()
  }

  close() {}

  software() {
    return true
  }
}

// makeRects returns the renderer of a canvas. Small pictures, of which a page may have more than a browser has
// contexts of WebGL, are drawn by Canvas2D.
export function makeRects(canvas, small) {
  if (!small && new URLSearchParams(location.search).get('renderer') !== '2d') {
    const gl = canvas.getContext('webgl2', { antialias: false, alpha: false, depth: false, stencil: false })
    if (gl) return new GLRects(canvas, gl)
  }
  return new CanvasRects(canvas)
}
