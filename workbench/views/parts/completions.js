// The completions of one group. Every text from outside reaches the page through textContent alone.
function node(tag, cls, text) {
  const n = document.createElement(tag)
  if (cls) n.className = cls
  if (text !== undefined) n.textContent = text
  return n
}
function signed(v, digits) {
  if (v === null) return "–"
  const text = Math.abs(v).toFixed(digits)
  return (Number(text) === 0 ? "" : v > 0 ? "+" : "−") + text
}

export function render({model, el}) {
  const root = node("div", "wb")
  el.append(root)
  const full = new Map()
  let rows = model.rows
  const draw = () => {
    root.replaceChildren()
    if (!rows.length) { root.append(node("div", "empty", model.empty)); return }
    const top = node("div", "row top")
    for (const name of ["", "completion", "reward and its parts", "advantage"]) top.append(node("small", "", name))
    root.append(top)
    const largest = Math.max(1e-9, ...rows.map(r => Math.abs(r.advantage ?? 0)))
    for (const r of rows) {
      const line = node("div", "row")
      const mark = node("span", "mark " + (r.correct === 1 ? "yes" : r.correct === 0 ? "no" : "none"),
        r.correct === 1 ? "✓" : r.correct === 0 ? "✗" : "–")
      mark.title = r.correct === 1 ? "correct" : r.correct === 0 ? "wrong" : "not verified"
      const reward = node("div", "num")
      reward.append(node("b", "", r.reward === null ? "no reward" : r.reward.toFixed(3)))
      reward.append(node("small", "", r.parts.map(([k, v]) => `${k} ${v.toFixed(2)}`).join(" · ")))
      const advantage = node("div", "adv")
      const track = node("div", "track")
      if (r.advantage) {
        const bar = node("i", r.advantage > 0 ? "pos" : "neg")
        const w = 50 * Math.abs(r.advantage) / largest
        bar.style.width = w + "%"
        bar.style.left = (r.advantage > 0 ? 50 : 50 - w) + "%"
        track.append(bar)
      }
      advantage.append(node("b", "", signed(r.advantage, 2)), track)
      const text = node("div", "text")
      const body = node("span", "body", full.get(r.id) ?? r.text)
      body.dir = "auto"
      text.append(body)
      if (r.more && !full.has(r.id)) {
        const all = node("button", "", r.more)
        all.type = "button"
        all.addEventListener("click", () => { all.disabled = true; all.textContent = "loading…"; model.send_msg({id: r.id}) })
        text.append(all)
      }
      text.append(node("small", "", r.note))
      line.append(mark, text, reward, advantage)
      root.append(line)
    }
  }
  const show = (next) => { rows = next; full.clear(); draw() }
  model.on("rows", () => show(model.rows))
  model.on("msg:custom", (m) => {
    if (m.rows) { show(m.rows); return }
    full.set(m.id, m.text)
    draw()
  })
  draw()
}
