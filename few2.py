import pandas as pd, numpy as np
pd.set_option('display.width',250)
for f in ('h100','l40s','a100','b200'):
    d=pd.read_pickle(f'/tmp/h/moescratch/{f}.pkl'); d['ratio']=d.predicted_s/d.measured_s
    d['pl']=d.balance!='balanced'; d['ep1']=d.ep==1
    g=d[d.tokens<=48]
    print(f); print(g.groupby(['dtype','pl','ep1','tokens']).ratio.median().unstack().round(2).to_string())
