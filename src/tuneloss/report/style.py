"""The look of all pages: light and dark, wide and as narrow as a phone."""

STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --card: #f5f7f9; --ink: #1d2127; --soft: #5a626d; --grid: #dfe2e7;
  --accent: #0072b2; --more: #1d212755; --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b04f86; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171b; --card: #1c2026; --ink: #e6e9ed; --soft: #a3abb6; --grid: #363c45; --accent: #6aa9ee;
    --more: #e6e9ed55; --c0: #6aa9ee; --c1: #f2914f; --c2: #46c99c; --c3: #e3a1c8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem clamp(1rem, 3vw, 3rem) 3rem; max-width: 96rem;
  background: var(--ground); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .4rem; }
h1:has(+ .verdict) { font-size: 1.1rem; margin: 0; color: var(--soft); font-weight: 600; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-top: 1rem; border-top: 1px solid var(--grid); }
h3 { font-size: 1rem; margin: 1.6rem 0 .2rem; }
h1, h2, h3, p, li, figcaption { overflow-wrap: anywhere; }
p { max-width: 50rem; margin: .5rem 0; }
.verdict { font-size: clamp(1.35rem, 1rem + 1.6vw, 2.1rem); line-height: 1.25; font-weight: 650; margin: .3rem 0 .6rem;
  max-width: 62rem; text-wrap: balance; }
.about, figcaption, .caption, .said { color: var(--soft); }
.charts { display: grid; gap: 1.4rem 1.6rem; margin-top: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 16rem), 1fr)); }
.figures { display: grid; gap: 1.5rem 2rem; margin-top: 1.2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
.pair { display: flex; flex-wrap: wrap; gap: 1rem 3rem; }
.pair > * { min-width: 0; max-width: 100%; flex: 1 1 24rem; } .pair > :first-child { flex-basis: 34rem; }
.pair.fit > :first-child { flex: 0 1 auto; } .pair.fit > :last-child { flex-basis: 20rem; }
.pair .charts:first-child { margin-top: .4rem; }
figure { margin: 0; max-width: 36rem; }
.charts figure { max-width: 24rem; display: flex; flex-direction: column; justify-content: space-between; }
figure svg { display: block; width: 100%; height: auto; overflow: visible; }
figure svg text { font-family: system-ui, sans-serif !important; }
figcaption, .caption { font-size: .9rem; }
.charts figcaption { line-height: 1.35; margin-bottom: .2rem; }
.charts figcaption b { color: var(--ink); font-weight: 600; }
.said, .keys { display: block; font-size: .82rem; }
.key { margin-right: .9rem; white-space: nowrap; }
.key::before { content: ""; display: inline-block; width: .8rem; height: .2rem; margin-right: .35rem;
  vertical-align: middle; background: var(--color); }
.key.level::before { height: 0; background: none; border-top: 2px dashed var(--soft); }
.c0 { --color: var(--c0); } .c1 { --color: var(--c1); } .c2 { --color: var(--c2); } .c3 { --color: var(--c3); }
.charts svg text { font-size: 11px; fill: var(--soft); font-variant-numeric: tabular-nums; }
.charts circle { fill: var(--color); } .line { fill: none; stroke: var(--color); stroke-width: 1.8; }
.grid { stroke: var(--grid); fill: none; } .dashed { stroke: var(--soft); stroke-dasharray: 5 4; fill: none; }
.at-start { text-anchor: start; } .at-mid { text-anchor: middle; } .at-end { text-anchor: end; }
.tip rect { fill: transparent; } .tip > :not(rect) { visibility: hidden; }
.charts svg .tip text { fill: var(--ink); font-weight: 600; }
.tip:hover > :not(rect) { visibility: visible; }
.bars { display: grid; grid-template-columns: minmax(4rem, max-content) minmax(4rem, 1fr) max-content; gap: .3rem .8rem;
  align-items: center; font-size: .92rem; max-width: 46rem; font-variant-numeric: tabular-nums; }
.bars > :first-child, .bars > div { overflow-wrap: anywhere; } .bars .value { text-align: right; }
.track { background: var(--card); } .track i { display: block; height: .8rem; background: var(--c0); }
.track i.below { background: var(--c1); }
.range { width: 6rem; height: .8rem; display: inline-block; vertical-align: middle; }
.range path { stroke: var(--grid); stroke-width: 3; } .range circle { fill: var(--c0); }
.range circle.start { fill: none; stroke: var(--soft); stroke-width: 1.5; }
.next { list-style: none; margin: 0; padding: 0; display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); }
.next li { background: var(--card); padding: .8rem 1rem; border-radius: .4rem; min-width: 0; }
.next li b { display: block; } .next p { margin: .2rem 0; }
pre { margin: .5rem 0 0; padding: .6rem .8rem; overflow-x: auto; background: var(--ground);
  border: 1px solid var(--grid); border-radius: .3rem; font: .85rem/1.45 ui-monospace, monospace; }
details { margin: .8rem 0; } summary { cursor: pointer; color: var(--accent); }
.columns { columns: 18rem; font-variant-numeric: tabular-nums; font-size: .9rem; margin-top: .6rem; }
.columns div { display: flex; justify-content: space-between; gap: 1rem; break-inside: avoid; }
.scroll { overflow-x: auto; width: fit-content; max-width: 100%; background:
  linear-gradient(to right, var(--ground) 1rem, transparent 2.5rem) local left / 100% 100%,
  linear-gradient(to left, var(--ground) 1rem, transparent 2.5rem) local right / 100% 100%,
  linear-gradient(to right, var(--more), transparent .8rem) left / 100% 100%,
  linear-gradient(to left, var(--more), transparent .8rem) right / 100% 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem 1.1rem .3rem 0; text-align: right; border-bottom: 1px solid var(--grid); }
th { vertical-align: bottom; } td { white-space: nowrap; }
td:first-child, table.words td { white-space: normal; overflow-wrap: break-word; min-width: 4.5rem; max-width: 18rem; }
@media (max-width: 36rem) { th, td { padding-right: .5rem; font-size: .85rem; }
  .weights td { white-space: normal; } .weights th:last-child, .weights td:last-child { display: none; } }
th:first-child, td:first-child { text-align: left; }
table.words th, table.words td { text-align: left; vertical-align: top; min-width: 6rem; }
tr.chosen td { font-weight: 650; }
tr.chosen td:first-child { color: var(--accent); }
"""
