#pragma once
// report.html: one self-contained page with the plots of a run. The numbers lie in the page as JSON; a few lines of
// script draw them as SVG, so the page works offline and a reader can copy the data out of it.

#include <string>

namespace cairn {

/// The JSON texts that a report shows. `metrics`: array of {"step","epoch","loss","lr","samples_per_s"[, "test_loss",
/// "test_…"]}.
/// `profile`: array of {"layer","forward_ms","backward_ms"[,"roofline"]}. `examples`:
/// {"kind":"scatter","names":[…],"points":[[true,predicted,…],…]} or {"kind":"confusion","names":[…],"counts":[[…]]} or
/// null.
struct report_data {
    std::string title;
    std::string record;    // object, as in record.json
    std::string metrics;   // array
    std::string profile;   // array
    std::string examples;  // object or null
    std::string config;    // TOML text
};

namespace detail {

inline std::string escape_html(const std::string& text) {
    std::string out;
    for (char c : text) {
        if (c == '<')
            out += "&lt;";
        else if (c == '>')
            out += "&gt;";
        else if (c == '&')
            out += "&amp;";
        else
            out += c;
    }
    return out;
}

// "</script>" inside a string must not end the script element.
inline std::string escape_script(const std::string& json) {
    std::string out;
    for (char c : json) {
        if (c == '<')
            out += "\\u003c";
        else
            out += c;
    }
    return out;
}

inline constexpr const char* report_style = R"css(
:root{--ink:#1b2330;--soft:#5d6b7e;--line:#dfe4ea;--a:#1f6feb;--b:#d9480f;--c:#2b8a3e;--d:#862e9c;--paper:#fff;--back:#f5f7f9}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa7b8;--line:#323b47;--a:#6ea8fe;--b:#ff922b;--c:#69db7c;--d:#da77f2;--paper:#1a2028;--back:#12161c}}
*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}h1{font-size:26px;margin:0}h2{font-size:16px;margin:0 0 6px}
.sub{color:var(--soft);margin:2px 0 20px}.tiles{display:flex;flex-wrap:wrap;gap:12px;margin-bottom:16px}
.tile{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:12px 16px;min-width:150px}
.tile b{display:block;font-size:22px;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px}
section{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:14px 16px;overflow:auto}
.wide{grid-column:1/-1}svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:12px}
.axis{stroke:var(--line);stroke-width:1}.key{display:inline-block;margin-right:14px;font-size:13px;color:var(--soft)}
.key i{display:inline-block;width:12px;height:3px;vertical-align:middle;margin-right:5px}
pre{margin:0;font-size:12.5px;overflow:auto;max-height:420px}table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
td,th{padding:3px 8px;text-align:right;border-bottom:1px solid var(--line)}td:first-child,th:first-child{text-align:left}
)css";

inline constexpr const char* report_script = R"js({
const S='http://www.w3.org/2000/svg',W=560,H=270,M={l:56,r:14,t:10,b:38};
const el=(n,a,t)=>{const e=document.createElementNS(S,n);for(const k in a)e.setAttribute(k,a[k]);if(t!==undefined)e.textContent=t;return e};
const num=x=>{if(x===0)return'0';const a=Math.abs(x);return a>=1e4||a<1e-3?x.toExponential(1):a>=100?x.toFixed(0):String(+x.toPrecision(3))};
function card(title,wide){const s=document.createElement('section');if(wide)s.className='wide';const h=document.createElement('h2');h.textContent=title;s.append(h);document.querySelector('.grid').append(s);return s}
function ticks(lo,hi,n){const raw=(hi-lo)/n||1,p=10**Math.floor(Math.log10(raw)),f=raw/p,step=p*(f<1.5?1:f<3.5?2:f<7.5?5:10),out=[];for(let v=Math.ceil(lo/step-1e-9)*step;v<=hi+step*1e-9;v+=step)out.push(Math.abs(v)<step*1e-9?0:v);return out}
function frame(svg,x0,x1,y0,y1,xl,log){const X=v=>M.l+(v-x0)/(x1-x0||1)*(W-M.l-M.r),Y=v=>H-M.b-(v-y0)/(y1-y0||1)*(H-M.t-M.b);
 const ys=log?ticks(y0,y1,4).map(v=>[v,num(10**v)]):ticks(y0,y1,5).map(v=>[v,num(v)]);
 for(const[v,t]of ys){svg.append(el('line',{class:'axis',x1:M.l,x2:W-M.r,y1:Y(v),y2:Y(v)}),el('text',{x:M.l-7,y:Y(v)+4,'text-anchor':'end'},t))}
 for(const v of ticks(x0,x1,6))svg.append(el('text',{x:X(v),y:H-M.b+17,'text-anchor':'middle'},num(v)));
 svg.append(el('text',{x:(W+M.l)/2,y:H-4,'text-anchor':'middle'},xl));return[X,Y]}
function lines(title,series,opt={}){series=series.filter(s=>s.p.length);if(!series.length)return;const s=card(title);
 const keys=document.createElement('div');for(const r of series){const k=document.createElement('span');k.className='key';k.innerHTML=`<i style="background:${r.c}"></i>`;k.append(r.n);keys.append(k)}s.append(keys);
 const all=series.flatMap(r=>r.p).filter(p=>isFinite(p[1])),log=opt.log&&all.every(p=>p[1]>0),f=v=>log?Math.log10(v):v;
 let xs=all.map(p=>p[0]),v=all.map(p=>f(p[1])),x0=Math.min(...xs),x1=Math.max(...xs),y0=Math.min(...v),y1=Math.max(...v);if(opt.zero)y0=Math.min(0,y0);const pad=(y1-y0)*.06||Math.abs(y1)*.1||1;if(!opt.zero)y0-=pad;y1+=pad;
 const svg=el('svg',{viewBox:`0 0 ${W} ${H}`,role:'img','aria-label':title}),[X,Y]=frame(svg,x0,x1,y0,y1,opt.x||'step',log);
 for(const r of series){const p=r.p.filter(p=>isFinite(p[1]));svg.append(el('polyline',{points:p.map(q=>X(q[0])+','+Y(f(q[1]))).join(' '),fill:'none',stroke:r.c,'stroke-width':r.thin?1:2,opacity:r.thin?.35:1}));
  if(r.dots)for(const q of p){const c=el('circle',{cx:X(q[0]),cy:Y(f(q[1])),r:3.2,fill:r.c});c.append(el('title',{},`step ${q[0]}: ${num(q[1])}`));svg.append(c)}}
 s.append(svg)}
function smooth(p,w){if(p.length<8)return p;const out=[];let m=p[0][1];for(const[x,y]of p){m+= (y-m)*w;out.push([x,m])}return out}
function scatter(name,pts,i){const s=card(`Predicted against true: ${name}`),v=pts.flat(),lo=Math.min(...v),hi=Math.max(...v),pad=(hi-lo)*.05;
 const svg=el('svg',{viewBox:`0 0 ${W} ${H}`,role:'img','aria-label':name}),[X,Y]=frame(svg,lo-pad,hi+pad,lo-pad,hi+pad,'true '+name);
 svg.append(el('line',{x1:X(lo),y1:Y(lo),x2:X(hi),y2:Y(hi),stroke:'var(--soft)','stroke-dasharray':'5 4'}));
 for(const[t,p]of pts)svg.append(el('circle',{cx:X(t),cy:Y(p),r:3,fill:`var(--${'abcd'[i%4]})`,opacity:.6}));s.append(svg)}
function confusion(names,m){const s=card('Confusion: rows true, columns predicted',m.length>12),k=m.length,size=Math.min(34,520/k),L=110,svg=el('svg',{viewBox:`0 0 ${L+k*size+10} ${L*.75+k*size+6}`,role:'img'});
 m.forEach((row,i)=>{const sum=row.reduce((a,b)=>a+b,0)||1;svg.append(el('text',{x:L-6,y:L*.75+i*size+size*.65,'text-anchor':'end'},names[i]));
  svg.append(el('text',{transform:`translate(${L+i*size+size*.6},${L*.75-6}) rotate(-55)`},names[i]));
  row.forEach((c,j)=>{const q=c/sum,r=el('rect',{x:L+j*size,y:L*.75+i*size,width:size-1,height:size-1,fill:i==j?'var(--c)':'var(--b)',opacity:.06+.94*Math.min(1,i==j?q:q*3)});r.append(el('title',{},`${names[i]} → ${names[j]}: ${c}`));svg.append(r);
   if(size>24&&c)svg.append(el('text',{x:L+j*size+size/2,y:L*.75+i*size+size*.62,'text-anchor':'middle',style:'font-size:10px'},c))})});s.append(svg)}
function bars(title,rows,unit,wide){rows=rows.filter(r=>r.v>0);if(!rows.length)return;const s=card(title,wide),h=22,w=wide?1120:560,L=wide?240:130,max=Math.max(...rows.map(r=>r.v)),svg=el('svg',{viewBox:`0 0 ${w} ${rows.length*h+6}`,role:'img'});
 rows.forEach((r,i)=>{let x=L;svg.append(el('text',{x:L-8,y:i*h+15,'text-anchor':'end'},r.n));for(const[v,c]of r.parts||[[r.v,'var(--a)']]){const len=v/max*(w-L-190);svg.append(el('rect',{x,y:i*h+3,width:Math.max(len,.5),height:h-7,fill:c,rx:2}));x+=len}svg.append(el('text',{x:x+7,y:i*h+15},r.t||`${num(r.v)} ${unit}`))});s.append(svg)}
const D=JSON.parse(document.getElementById('data').textContent),m=D.metrics,pick=k=>m.filter(r=>k in r&&r[k]!==null).map(r=>[r.step,r[k]]);
const tiles=document.querySelector('.tiles');for(const[k,t]of D.record.headline||[]){const d=document.createElement('div');d.className='tile';const b=document.createElement('b'),s=document.createElement('span');b.textContent=t;s.textContent=k;d.append(b,s);tiles.append(d)}
const loss=pick('loss');lines('Loss',[{n:'training batch',c:'var(--a)',p:loss,thin:1},{n:'training, smoothed',c:'var(--a)',p:smooth(loss,.1)},{n:'test',c:'var(--b)',p:pick('test_loss'),dots:1}],{log:1});
const quality=[...new Set(m.flatMap(Object.keys))].filter(k=>/^(test_|train_)(?!loss)/.test(k));
const groups={r2_:'R²',rmse_:'Root of the mean squared error',mae_:'Mean absolute error',auc_:'Area under the ROC curve'},seen=new Set(),hue=i=>`var(--${'abcd'[i%4]})`;
for(const k of quality.filter(k=>k.startsWith('test_'))){const t=k.slice(5),g=Object.keys(groups).find(p=>t.startsWith(p));
 if(!g){lines(t.replaceAll('_',' '),[{n:'training',c:'var(--a)',p:smooth(pick('train_'+t),.15)},{n:'test',c:'var(--b)',p:pick(k),dots:1}]);continue}
 if(seen.has(g))continue;seen.add(g);lines(groups[g]+' on the test set',quality.filter(q=>q.startsWith('test_'+g)).map((q,i)=>({n:q.slice(5+g.length),c:hue(i),p:pick(q),dots:1})))}
lines('Throughput, samples/s',[{n:'training',c:'var(--c)',p:pick('samples_per_s')}],{zero:1});lines('Learning rate',[{n:'',c:'var(--d)',p:pick('lr')}],{zero:1});
const E=D.examples;if(E&&E.kind==='scatter')E.names.forEach((n,i)=>scatter(n,E.points.map(p=>[p[2*i],p[2*i+1]]),i));if(E&&E.kind==='confusion')confusion(E.names,E.counts);
bars('Peak memory by category',Object.entries(D.record.memory||{}).map(([n,v])=>({n,v:v/2**20})),'MiB');
const top=D.profile.slice().sort((a,b)=>b.forward_ms+b.backward_ms-a.forward_ms-a.backward_ms).slice(0,28);
bars('Time by layer in one training step: forward (blue), backward (orange), share of the roofline',top.map(r=>({n:r.layer,v:r.forward_ms+r.backward_ms,parts:[[r.forward_ms,'var(--a)'],[r.backward_ms,'var(--b)']],t:`${num(r.forward_ms+r.backward_ms)} ms${'roofline'in r?` · ${(100*r.roofline).toFixed(0)} %`:''}`})),'ms',1);
const pre=(t,x)=>{const s=card(t),p=document.createElement('pre');p.textContent=x;s.append(p)};pre('Settings',D.config);pre('Record',JSON.stringify({...D.record,headline:undefined},null,1));
})js";

}  // namespace detail

/// The page as text.
inline std::string report_html(const report_data& d) {
    const std::string title = detail::escape_html(d.title);
    std::string config = "\"";
    for (char c : d.config) {
        if (c == '"' || c == '\\') config += '\\';
        if (c == '\n')
            config += "\\n";
        else
            config += c;
    }
    config += '"';
    const std::string data = "{\"record\":" + d.record + ",\"metrics\":" + d.metrics + ",\"profile\":" + d.profile +
                             ",\"examples\":" + d.examples + ",\"config\":" + config + "}";
    return "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
           "content=\"width=device-width\"><title>" +
           title + "</title><style>" + detail::report_style + "</style></head><body><main><h1>" + title +
           "</h1><p class=\"sub\">a training run of Cairn</p><div class=\"tiles\"></div><div "
           "class=\"grid\"></div></main>"
           "<script type=\"application/json\" id=\"data\">" +
           detail::escape_script(data) + "</script><script>" + detail::report_script + "</script></body></html>\n";
}

}  // namespace cairn
