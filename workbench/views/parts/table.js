// A table whose rows can be clicked, walked with the arrow keys and paged. Text reaches the page through textContent alone.
function node(tag, cls, text) {
  const n = document.createElement(tag)
  if (cls) n.className = cls
  if (text !== undefined) n.textContent = text
  return n
}

export function render({model, el}) {
  const root = node("div", "listing")
  el.append(root)
  let state = model.state
  const pick = (key) => model.send_msg({pick: key})
  const cell = (value, column) => {
    const td = node("td", column.form || "")
    td.dataset.name = column.name
    if (value === null || value === undefined) { td.textContent = "–"; return td }
    if (typeof value === "string") { td.append(node("span", "", value)); return td }
    td.append(node("span", "", value.text))
    if (column.form === "text") td.title = value.text
    if (value.note) td.append(node("small", "", value.note))
    if (value.chips) {
      td.classList.add("wide")
      const chips = node("span", "chips")
      for (const [name, number] of value.chips) {
        const chip = node("span", "chip", name + " ")
        chip.append(node("b", "", number))
        chips.append(chip)
      }
      td.append(chips)
    }
    if (value.bars) {
      const track = node("div", "track")
      for (const [share, color, what] of value.bars) {
        const bar = node("i")
        bar.style.width = Math.max(0, Math.min(100, 100 * share)) + "%"
        bar.style.background = color
        bar.title = what
        track.append(bar)
      }
      td.append(track)
    }
    return td
  }
  const draw = () => {
    const held = root.getRootNode().activeElement?.dataset?.key
    root.replaceChildren()
    const {columns = [], rows = [], chosen = "", note = "", before = false, after = false, empty = [], picks = true, stacks = false} = state
    root.classList.toggle("stacks", stacks)
    if (!rows.length) {
      const box = node("div", "empty")
      empty.forEach((line, i) => box.append(node(i ? "div" : "b", "", line)))
      root.append(box)
      return
    }
    const scroll = node("div", "scroll"), table = node("table"), head = node("tr")
    for (const c of columns) {
      const th = node("th", c.form || "", c.name)
      if (c.hint) th.title = c.hint
      th.scope = "col"
      head.append(th)
    }
    const thead = node("thead"), tbody = node("tbody")
    thead.append(head)
    rows.forEach((r, i) => {
      const tr = node("tr", r.key !== "" && r.key === chosen ? "chosen" : "")
      r.cells.forEach((value, k) => tr.append(cell(value, columns[k])))
      if (picks && r.key !== "") {
        tr.classList.add("live")
        tr.tabIndex = 0
        tr.dataset.key = r.key
        tr.setAttribute("aria-selected", String(r.key === chosen))
        tr.addEventListener("click", () => pick(r.key))
        tr.addEventListener("keydown", (e) => {
          const step = {ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling"}[e.key]
          if (step) { e.preventDefault(); e.stopPropagation(); tr[step]?.focus() }
          if (e.key === "Enter" || e.key === " ") { e.preventDefault(); pick(r.key) }
        })
      }
      tbody.append(tr)
      if (held !== undefined && held === r.key) queueMicrotask(() => tr.focus({preventScroll: true}))
    })
    table.append(thead, tbody)
    scroll.append(table)
    root.append(scroll)
    const foot = node("div", "foot")
    if (before || after) {
      for (const [by, label, on] of [[-1, "‹ Back", before], [1, "Next ›", after]]) {
        const b = node("button", "", label)
        b.type = "button"
        b.disabled = !on
        b.addEventListener("click", () => { b.disabled = true; model.send_msg({turn: by}) })
        foot.append(b)
      }
    }
    if (note) foot.append(node("small", "", note))
    if (foot.childNodes.length) root.append(foot)
  }
  model.on("state", () => { state = model.state; draw() })
  model.on("msg:custom", (m) => { if (m.state) { state = m.state; draw() } })
  draw()
}
