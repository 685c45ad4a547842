// What our components share: elements whose text never becomes markup, numbers for people, colours by meaning.
const NS = "http://www.w3.org/2000/svg"
const YES = "#13a082", NO = "#d4512a", GREY = "#8b949e", MIDDLE = "#a4abb3", FORK = "#a9669f", CHOSEN = "#e5484d"

function node(tag, cls, text) {
  const n = document.createElement(tag)
  if (cls) n.className = cls
  if (text !== undefined) n.textContent = text
  return n
}
function mark(tag, attributes, parent, text) {
  const n = document.createElementNS(NS, tag)
  for (const k in attributes) n.setAttribute(k, attributes[k])
  if (text !== undefined) n.textContent = text
  if (parent) parent.appendChild(n)
  return n
}
function button(text, title, act) {
  const b = node("button", "", text)
  b.type = "button"
  b.title = title
  b.addEventListener("click", act)
  return b
}
function number(v, digits = 2) {
  return v === null || v === undefined ? "–" : v.toFixed(digits).replace("-", "−")
}
function signed(v, digits = 2) {
  if (v === null || v === undefined) return "–"
  const text = Math.abs(v).toFixed(digits)
  return (Number(text) === 0 ? "" : v > 0 ? "+" : "−") + text
}
function count(n) { return n.toLocaleString("en-US") }
function rgb(hex) { return [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16)) }
function between(a, b, t) {
  const [x, y] = [rgb(a), rgb(b)]
  return `rgb(${x.map((v, i) => Math.round(v + (y[i] - v) * t)).join(",")})`
}
// 0 = NO, 1/2 = MIDDLE, 1 = YES
function shade(t) {
  t = Math.min(1, Math.max(0, t))
  return t < 0.5 ? between(NO, MIDDLE, 2 * t) : between(MIDDLE, YES, 2 * t - 1)
}
// Buttons of which one is on; choose(name) is called with the one pressed.
function switches(label, names, on, choose) {
  const box = node("span", "switch")
  box.setAttribute("role", "radiogroup")
  box.setAttribute("aria-label", label)
  for (const [name, text, why] of names) {
    const b = button(text, why || "", () => choose(name))
    b.setAttribute("role", "radio")
    b.setAttribute("aria-checked", name === on)
    b.disabled = Boolean(why) && names.find(n => n[0] === name)[3] === false
    b.className = name === on ? "on" : ""
    box.append(b)
  }
  return box
}
function gradient(colors, low, high, unit) {
  const box = node("span", "scale")
  const bar = node("i")
  bar.style.background = `linear-gradient(90deg, ${colors.join(",")})`
  box.append(node("small", "", low), bar, node("small", "", high), node("small", "", unit))
  return box
}
