// Zooms into the box that is clicked: it gets the width of the picture, and so do the boxes below it.
(function () {
  var width = 1200, letter = 6.6;
  var boxes = Array.from(document.querySelectorAll("#boxes .f"));
  function zoom(left, part) {
    boxes.forEach(function (box) {
      var x = Number(box.dataset.x), w = Number(box.dataset.w);
      var from = Math.max((x - left) / part * width, 0);
      var to = Math.min((x + w - left) / part * width, width);
      box.style.display = to - from < 0.5 ? "none" : "";
      var rect = box.querySelector("rect"), text = box.querySelector("text");
      rect.setAttribute("x", from);
      rect.setAttribute("width", Math.max(to - from, 0));
      text.setAttribute("x", from + 3);
      var letters = Math.floor((to - from - 6) / letter), name = Array.from(box.dataset.n);
      text.textContent = letters <= 2 ? "" :
        name.length <= letters ? name.join("") : name.slice(0, letters - 2).join("") + "..";
    });
  }
  boxes.forEach(function (box) {
    box.style.cursor = "pointer";
    box.addEventListener("click", function () { zoom(Number(box.dataset.x), Number(box.dataset.w)); });
  });
})();
